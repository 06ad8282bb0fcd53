"""Shares of the log readers: no pod and no namespace gets all of them."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator

from plugin_server.common.errors import Busy

NAMED = 3  # namespaces in an error message


class LogShares:
    """Count of the logs that are being read; for any number of threads.

    A namespace may have as many readers as it leaves free, a pod a quarter of that: whoever comes
    next always finds some, and nothing has to be kept back while nobody wants it.
    """

    def __init__(self, readers: int) -> None:
        self._readers = readers
        self._pods: Counter[str] = Counter()
        self._namespaces: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def reader(self, namespace: str, pod: str) -> Iterator[int]:
        """Count a reader while the block runs, and yield how many there are; raises ``Busy``."""
        counted = ((self._namespaces, namespace), (self._pods, pod))
        with self._lock:
            self._check(namespace, pod)
            for counter, key in counted:
                counter[key] += 1
            number = self._namespaces.total()
        try:
            yield number
        finally:
            with self._lock:
                for counter, key in counted:
                    counter[key] -= 1
                    if not counter[key]:
                        del counter[key]

    def _check(self, namespace: str, pod: str) -> None:
        used = self._namespaces.total()
        free = self._readers - used
        if not free:
            rest = "none is left"
        elif self._namespaces[namespace] >= free:
            rest = f"the rest is for other namespaces than {namespace}"
        elif 4 * self._pods[pod] >= free:
            rest = f"{self._pods[pod]} of them are this pod's, the rest is for others"
        else:
            return
        named = self._namespaces.most_common(NAMED)
        most = ", ".join(f"{name} {number}" for name, number in named)
        raise Busy(
            f"{used} of {self._readers} logs (server.log_readers) are being read, "
            f"most by namespaces {most}; {rest}: try it later"
        )
