"""What looks at Kubernetes every now and then, in a thread of its own."""

from __future__ import annotations

import logging
import threading
from typing import Callable

from plugin_server.cluster import ClusterError

logger = logging.getLogger(__name__)


class Looking:
    """Looks again and again; tells trouble when it begins, changes and ends."""

    def __init__(self, name: str, look: Callable[[], None], pause_s: Callable[[], float]) -> None:
        self._name = name
        self._look = look
        self._pause_s = pause_s
        self._trouble = ""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking, name=name, daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; what it asks Kubernetes just now is not waited for."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(1)

    @property
    def is_over(self) -> bool:
        """Whether it has been told to stop."""
        return self._stopping.is_set()

    def _keep_looking(self) -> None:
        while True:
            trouble = ""
            try:
                self._look()
            except ClusterError as error:
                trouble = str(error)
            if trouble != self._trouble:
                self._trouble = trouble
                logger.warning("%s: %s", self._name, trouble or "Kubernetes answers again")
            if self._stopping.wait(self._pause_s()):
                return
