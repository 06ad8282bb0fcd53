"""Calling a function again and again, in a thread of its own."""

from __future__ import annotations

import logging
import threading
from typing import Callable

from templates.common.errors import InterlinkNatsError
from templates.program.recurring_error import RecurringError

logger = logging.getLogger(__name__)


class Looking:
    """Calls a function from ``start`` to ``stop``; whatever it raises does not end that."""

    def __init__(
        self,
        name: str,
        look: Callable[[], None],
        pause_s: Callable[[], float],
        works_again: str = "works again",
    ) -> None:
        self._look = look
        self._pause_s = pause_s
        self._error = RecurringError(logger, name, f"{name}: {works_again}")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking, name=name, daemon=True)

    def start(self) -> None:
        """Begin with the first call."""
        self._thread.start()

    def stop(self, wait_s: float = 1.0) -> None:
        """End the thread; a call that takes longer than this is not waited for."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(wait_s)

    @property
    def is_over(self) -> bool:
        """Whether it has been told to stop."""
        return self._stopping.is_set()

    def _keep_looking(self) -> None:
        while True:
            try:
                self._look()
            except InterlinkNatsError as error:
                self._error.set(str(error))
            except Exception as error:  # whatever it was, the next call may do better
                if self._error.changes_to(repr(error)):
                    logger.exception("%s failed", self._thread.name)
            else:
                self._error.clear()
            if self._stopping.wait(self._pause_s()):
                return
