"""Rejections of pods, for virtual kubelets that do not fail a pod whose create has failed.

Those before interLink 0.6 leave it pending and ask for its status.
"""

from __future__ import annotations

import threading
from typing import Optional

MAX_REJECTIONS = 10_000  # the oldest are removed first


class Rejections:
    """Messages of rejected pods by uid; called by any number of threads."""

    def __init__(self) -> None:
        self._messages: dict[str, str] = {}
        self._lock = threading.Lock()

    def add(self, uid: str, message: str) -> None:
        with self._lock:
            self._messages[uid] = message
            while len(self._messages) > MAX_REJECTIONS:
                del self._messages[next(iter(self._messages))]

    def remove(self, uid: str) -> None:
        with self._lock:
            self._messages.pop(uid, None)

    def message(self, uid: str) -> Optional[str]:
        return self._messages.get(uid)
