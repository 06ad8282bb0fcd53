"""Why pods were refused, for virtual kubelets that do not fail a pod whose create has failed.

Those before interLink 0.6 leave it pending and ask how it is doing.
"""

from __future__ import annotations

import threading
from typing import Optional

KEPT = 10_000  # the oldest go first


class Refusals:
    """By the uid of the pod; called by any number of threads."""

    def __init__(self) -> None:
        self._words: dict[str, str] = {}
        self._lock = threading.Lock()

    def note(self, uid: str, words: str) -> None:
        with self._lock:
            self._words[uid] = words
            while len(self._words) > KEPT:
                del self._words[next(iter(self._words))]

    def forget(self, uid: str) -> None:
        with self._lock:
            self._words.pop(uid, None)

    def words(self, uid: str) -> Optional[str]:
        return self._words.get(uid)
