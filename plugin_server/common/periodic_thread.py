"""Threads that call a function periodically."""

from __future__ import annotations

import logging
import threading
from typing import Callable

from templates.common.errors import InterlinkNatsError
from templates.program.recurring_error import RecurringError

logger = logging.getLogger(__name__)


class Poller:
    """Thread that calls a function periodically; errors are logged and do not end it."""

    def __init__(
        self,
        name: str,
        function: Callable[[], None],
        interval_s: Callable[[], float],
        recovery: str = "works again",
    ) -> None:
        self._function = function
        self._interval_s = interval_s
        self._error = RecurringError(logger, name, f"{name}: {recovery}")
        self._stop_event = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread; it calls the function at once."""
        self._thread.start()

    def stop(self, wait_s: float = 1.0) -> None:
        """Stop the thread; do not wait for a call that takes longer than ``wait_s``."""
        self._stop_event.set()
        if self._thread.is_alive():
            self._thread.join(wait_s)

    @property
    def is_stopping(self) -> bool:
        """Return whether ``stop`` was called."""
        return self._stop_event.is_set()

    def _run(self) -> None:
        while True:
            try:
                self._function()
            except InterlinkNatsError as error:
                self._error.set(str(error))
            except Exception as error:  # the next call may succeed
                if self._error.changes_to(repr(error)):
                    logger.exception("%s failed", self._thread.name)
            else:
                self._error.clear()
            if self._stop_event.wait(self._interval_s()):
                return
