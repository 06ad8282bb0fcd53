"""The table of all jobs, in memory: filled by publications of sites, read by status requests.

An entry belongs to the pool that published it, so that a site can lie about its own pool only.
The status in an entry never changes: a new status is a new entry, so that readers need no lock.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Collection, Iterable
from typing import Callable, Optional

from templates.job.status import ENDED, PHASES, JobStatus

MAX_JOBS = 200_000  # of one pool; a site must not fill the memory
MAX_POD_POOLS = 100_000  # pods that have named their pool; the oldest are removed first
MAX_REMOVED = 10_000  # pods whose job is gone, likewise
FAILED = "failed"  # a job that has ended with another exit code than 0
ZERO_COUNTS = dict.fromkeys((*PHASES, FAILED), 0)


class Entry:
    """Status of a job, and when it was last received."""

    __slots__ = ("pool", "received", "status")

    def __init__(self, pool: str, status: JobStatus, received: float) -> None:
        self.pool = pool
        self.status = status
        self.received = received


class JobTable:
    """Table of the jobs of all pools."""

    def __init__(self, default_pool: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        self._default_pool = default_pool
        self._clock = clock
        self._pools: dict[str, dict[str, Entry]] = {}  # pool -> uid -> entry
        self._pod_pools: dict[str, str] = {}  # uid -> the pool that the pod itself names
        self._removed: dict[tuple[str, str], None] = {}  # pools and uids that were removed
        self._lock = threading.Lock()

    # --- writing ------------------------------------------------------------------------------

    def put(self, pool: str, status: JobStatus) -> bool:
        """Store a status, unless it is outdated; return whether it was new."""
        return self._put(pool, status, _interned)

    def _put(self, pool: str, status: JobStatus, intern: Callable[[JobStatus], JobStatus]) -> bool:
        now = self._clock()
        with self._lock:
            jobs = self._pools.setdefault(sys.intern(pool), {})
            known = jobs.get(status.uid)
            if known is not None and not _follows(known.status, status):
                return False
            if known is not None and known.status == status:
                known.received = now
                return False
            if known is None and len(jobs) >= MAX_JOBS:
                return False
            jobs[status.uid] = Entry(sys.intern(pool), intern(status), now)
            self._removed.pop((pool, status.uid), None)
            return True

    def add_accepted(self, pool: str, status: JobStatus) -> None:
        """Store the status of a job that a site has just accepted.

        The site may have published a later one by now, or removed the job again.
        """
        with self._lock:
            if (pool, status.uid) in self._removed:
                return
            self._pod_pools[status.uid] = sys.intern(pool)
        self._put(pool, status, lambda interned: interned)

    def remove(self, pool: str, uids: Iterable[str]) -> None:
        """Remove jobs that the site no longer has."""
        with self._lock:
            jobs = self._pools.get(pool, {})
            for uid in uids:
                jobs.pop(uid, None)
                self._pod_pools.pop(uid, None)
                self._removed[pool, uid] = None
            while len(self._removed) > MAX_REMOVED:
                del self._removed[next(iter(self._removed))]

    def keep_only(self, pool: str, uids: Collection[str], received_before: float) -> int:
        """Remove jobs that are not in a complete list, unless they are newer; return how many."""
        with self._lock:
            jobs = self._pools.get(pool, {})
            stale = [
                uid
                for uid, entry in jobs.items()
                if uid not in uids and entry.received < received_before
            ]
        self.remove(pool, stale)
        return len(stale)

    def remember_pool(self, uid: str, pool: str) -> None:
        """Remember the pool that the pod itself names."""
        if self._pod_pools.get(uid) != pool:
            with self._lock:
                self._pod_pools[uid] = sys.intern(pool)
                while len(self._pod_pools) > MAX_POD_POOLS:
                    del self._pod_pools[next(iter(self._pod_pools))]

    # --- reading ------------------------------------------------------------------------------

    def find(self, uid: str, pool: str = "") -> Optional[Entry]:
        """Return the entry of a pod in the pool that it names, or has named; None if unknown."""
        pool = pool or self._pod_pools.get(uid, "")
        if pool:
            return self._pools.get(pool, {}).get(uid)
        for jobs in (self._pools.get(self._default_pool, {}), *list(self._pools.values())):
            if uid in jobs:
                return jobs.get(uid)
        return None

    def pool_of(self, uid: str) -> str:
        """Return the pool of a pod; empty if unknown."""
        entry = self.find(uid)
        return entry.pool if entry is not None else self._pod_pools.get(uid, "")

    def of_origin(self, origin: str) -> list[tuple[str, JobStatus]]:
        """Return pool and status of each job that belongs to a cluster."""
        with self._lock:
            return [
                (pool, entry.status)
                for pool, jobs in self._pools.items()
                for entry in jobs.values()
                if entry.status.origin == origin
            ]

    def count(self, pool: str) -> int:
        """Return the number of jobs of a pool."""
        return len(self._pools.get(pool, {}))

    def count_by_phase(self) -> dict[str, dict[str, int]]:
        """Return how many jobs of each pool are in each phase, and how many have failed."""
        with self._lock:
            entries = [(p, list(jobs.values())) for p, jobs in self._pools.items()]
        counts: dict[str, dict[str, int]] = {}
        for pool, jobs in entries:
            of_pool = counts[pool] = dict(ZERO_COUNTS)
            for entry in jobs:
                of_pool[entry.status.phase] += 1
                of_pool[FAILED] += entry.status.phase == ENDED and entry.status.exit_code != 0
        return counts


def _follows(known: JobStatus, status: JobStatus) -> bool:
    """Return whether a status may replace the known one; an end is final."""
    if known.phase == ENDED and status.phase != ENDED:
        return False
    return status.version >= known.version


def _interned(status: JobStatus) -> JobStatus:
    """Return the status, with strings that many jobs share interned."""
    containers = tuple(
        entry._replace(
            kind=sys.intern(entry.kind),
            image=sys.intern(entry.image),
            state=entry.state._replace(
                name=sys.intern(entry.state.name),
                state=sys.intern(entry.state.state),
                reason=sys.intern(entry.state.reason),
            ),
        )
        for entry in status.containers
    )
    return status._replace(
        namespace=sys.intern(status.namespace),
        phase=sys.intern(status.phase),
        node=sys.intern(status.node),
        origin=sys.intern(status.origin),
        reason=sys.intern(status.reason),
        containers=containers,
    )
