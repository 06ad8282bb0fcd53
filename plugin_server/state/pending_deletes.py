"""Pending deletes: answered at once, and remembered until the site has confirmed them.

interLink asks once and never again, whatever we answer; so a deletion must outlive a site that is
away, and this process. ``delete_retries.py`` tells the sites.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Callable, Optional

from plugin_server.state.delete_records import Intent, IntentKeeper
from templates.common.names import uid_of

KEPT_S = 3600.0  # how long a deleted pod is remembered, so that a late create of it is refused


class Deletions:
    """What has to be deleted, and what was; called by any number of threads."""

    def __init__(
        self,
        keepers: Sequence[IntentKeeper],
        on_added: Callable[[str], object],  # told the pool
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keepers = keepers
        self._on_added = on_added
        self._clock = clock
        self._deleted: dict[str, float] = {}  # uid -> when; in the order of time
        self._waiting: dict[str, dict[str, Intent]] = {}  # pool -> job -> intent
        self._lock = threading.Lock()

    def add(self, pool: str, job: str, grace_period_s: Optional[int]) -> None:
        """Promise that a job ends, and is never begun if it has not been."""
        intent = Intent(pool, job, grace_period_s)
        for keeper in self._keepers:
            keeper.add(intent)
        self._take(intent)
        self._on_added(pool)

    def _take(self, intent: Intent) -> None:
        with self._lock:
            self._mark(uid_of(intent.job))
            self._waiting.setdefault(intent.pool, {})[intent.job] = intent

    def mark(self, uid: str) -> None:
        """A pod that is gone although nothing has to be deleted for it."""
        with self._lock:
            self._mark(uid)

    def _mark(self, uid: str) -> None:
        now = self._clock()
        self._deleted.pop(uid, None)
        self._deleted[uid] = now
        while self._deleted:
            oldest = next(iter(self._deleted))
            if now - self._deleted[oldest] < KEPT_S:
                break
            del self._deleted[oldest]

    def is_deleted(self, uid: str) -> bool:
        """Whether a pod's deletion was asked for lately."""
        return uid in self._deleted

    def waiting(self) -> dict[str, int]:
        """How many deletions of each pool its site has not confirmed."""
        with self._lock:
            return {pool: len(intents) for pool, intents in self._waiting.items()}

    def pending(self, pool: str) -> list[Intent]:
        """Return the deletions that a pool has not confirmed."""
        with self._lock:
            return list(self._waiting.get(pool, {}).values())

    def confirm(self, intent: Intent) -> None:
        """Forget a deletion that its site sees to."""
        with self._lock:
            self._waiting.get(intent.pool, {}).pop(intent.job, None)
        for keeper in self._keepers:
            keeper.remove(intent.job)

    def load(self) -> list[str]:
        """Take what was not confirmed when the plugin last ran; return the pools."""
        for keeper in self._keepers:
            for intent in keeper.load():
                self._take(intent)
        with self._lock:
            return list(self._waiting)
