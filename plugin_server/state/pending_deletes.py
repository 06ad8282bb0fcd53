"""Pending deletes: answered at once, and kept until the site has confirmed them.

interLink asks once and never again, whatever the response; so a delete must outlive a site that is
away, and this process. ``delete_retries.py`` sends them to the sites.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Callable, Optional

from plugin_server.state.delete_records import DeleteRecord, DeleteRecordStore
from templates.common.names import uid_of

TOMBSTONE_S = 3600.0  # how long a deleted pod is known, so that a late create is rejected


class Deletions:
    """Pending deletes, and tombstones of pods; called by any number of threads."""

    def __init__(
        self,
        stores: Sequence[DeleteRecordStore],
        on_added: Callable[[str], object],  # called with the pool
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stores = stores
        self._on_added = on_added
        self._clock = clock
        self._deleted: dict[str, float] = {}  # uid -> time; oldest first
        self._pending: dict[str, dict[str, DeleteRecord]] = {}  # pool -> job -> record
        self._lock = threading.Lock()

    def add(self, pool: str, job: str, grace_period_s: Optional[int]) -> None:
        """Request that a job ends, and never starts if it has not started."""
        record = DeleteRecord(pool, job, grace_period_s)
        for store in self._stores:
            store.add(record)
        self._remember(record)
        self._on_added(pool)

    def _remember(self, record: DeleteRecord) -> None:
        with self._lock:
            self._mark_deleted(uid_of(record.job))
            self._pending.setdefault(record.pool, {})[record.job] = record

    def mark_deleted(self, uid: str) -> None:
        """Set the tombstone of a pod for which nothing has to be deleted."""
        with self._lock:
            self._mark_deleted(uid)

    def _mark_deleted(self, uid: str) -> None:
        now = self._clock()
        self._deleted.pop(uid, None)
        self._deleted[uid] = now
        while self._deleted:
            oldest = next(iter(self._deleted))
            if now - self._deleted[oldest] < TOMBSTONE_S:
                break
            del self._deleted[oldest]

    def is_deleted(self, uid: str) -> bool:
        """Return whether a pod's deletion was requested lately."""
        return uid in self._deleted

    def count_pending(self) -> dict[str, int]:
        """Return how many deletes are pending, by pool."""
        with self._lock:
            return {pool: len(records) for pool, records in self._pending.items()}

    def pending(self, pool: str) -> list[DeleteRecord]:
        """Return the pending deletes of a pool."""
        with self._lock:
            return list(self._pending.get(pool, {}).values())

    def confirm(self, record: DeleteRecord) -> None:
        """Remove a pending delete that its site has confirmed."""
        with self._lock:
            self._pending.get(record.pool, {}).pop(record.job, None)
        for store in self._stores:
            store.remove(record.job)

    def load(self) -> list[str]:
        """Load the deletes that were pending when the plugin last ran; return their pools."""
        for store in self._stores:
            for record in store.load():
                self._remember(record)
        with self._lock:
            return list(self._pending)
