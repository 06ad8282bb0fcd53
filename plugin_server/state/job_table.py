"""What is known of every job, in memory: fed by what sites say, read by every status request.

An entry belongs to the pool that spoke of it, so that a site can lie about its own pool only.
What an entry says of its job never changes: a new status is a new entry, so that readers need no
lock.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Collection, Iterable
from typing import Callable, Optional

from templates.job.status import ENDED, PHASES, JobStatus

MOST_JOBS = 200_000  # of one pool; a site must not fill the memory
HOME_KEPT = 100_000  # pods whose pool was named once; the oldest are forgotten first
GONE_KEPT = 10_000  # pods whose job is gone, likewise
FAILED = "failed"  # a job that has ended with another exit code than 0
NOBODY = dict.fromkeys((*PHASES, FAILED), 0)


class Entry:
    """One job, and when it was last heard of."""

    __slots__ = ("heard", "pool", "status")

    def __init__(self, pool: str, status: JobStatus, heard: float) -> None:
        self.pool = pool
        self.status = status
        self.heard = heard


class StatesTable:
    """All jobs of all pools."""

    def __init__(self, default_pool: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        self._default_pool = default_pool
        self._clock = clock
        self._pools: dict[str, dict[str, Entry]] = {}  # pool -> uid -> entry
        self._homes: dict[str, str] = {}  # uid -> the pool that the pod itself named
        self._gone: dict[tuple[str, str], None] = {}  # pools and uids that they no longer have
        self._lock = threading.Lock()

    # --- writing ------------------------------------------------------------------------------

    def put(self, pool: str, status: JobStatus) -> bool:
        """Take a status, unless a later one is known; true if it says anything new."""
        return self._put(pool, status, _compact)

    def _put(self, pool: str, status: JobStatus, compact: Callable[[JobStatus], JobStatus]) -> bool:
        now = self._clock()
        with self._lock:
            jobs = self._pools.setdefault(sys.intern(pool), {})
            known = jobs.get(status.uid)
            if known is not None and not _follows(known.status, status):
                return False
            if known is not None and known.status == status:
                known.heard = now
                return False
            if known is None and len(jobs) >= MOST_JOBS:
                return False
            jobs[status.uid] = Entry(sys.intern(pool), compact(status), now)
            self._gone.pop((pool, status.uid), None)
            return True

    def enter(self, pool: str, status: JobStatus) -> None:
        """What a site has just taken from us (``accepted``).

        It may have said more of it by now, or lost it again.
        """
        with self._lock:
            if (pool, status.uid) in self._gone:
                return
            self._homes[status.uid] = sys.intern(pool)
        self._put(pool, status, lambda made: made)  # its texts are kept once already

    def remove(self, pool: str, uids: Iterable[str]) -> None:
        """The site no longer has them."""
        with self._lock:
            jobs = self._pools.get(pool, {})
            for uid in uids:
                jobs.pop(uid, None)
                self._homes.pop(uid, None)
                self._gone[pool, uid] = None
            while len(self._gone) > GONE_KEPT:
                del self._gone[next(iter(self._gone))]

    def keep_only(self, pool: str, uids: Collection[str], heard_before: float) -> int:
        """Remove what a complete list of a pool's jobs does not hold, but nothing newer than it."""
        with self._lock:
            jobs = self._pools.get(pool, {})
            stale = [
                uid for uid, entry in jobs.items() if uid not in uids and entry.heard < heard_before
            ]
        self.remove(pool, stale)
        return len(stale)

    def settle(self, uid: str, pool: str) -> None:
        """The pod itself names this pool as its own."""
        if self._homes.get(uid) != pool:
            with self._lock:
                self._homes[uid] = sys.intern(pool)
                while len(self._homes) > HOME_KEPT:
                    del self._homes[next(iter(self._homes))]

    # --- reading ------------------------------------------------------------------------------

    def find(self, uid: str, pool: str = "") -> Optional[Entry]:
        """What is known of a pod, from the pool that it names; if it names none, from its home."""
        pool = pool or self._homes.get(uid, "")
        if pool:
            return self._pools.get(pool, {}).get(uid)
        for jobs in (self._pools.get(self._default_pool, {}), *list(self._pools.values())):
            if uid in jobs:
                return jobs.get(uid)
        return None

    def pool_of(self, uid: str) -> str:
        """The pool of a pod; empty if it is not known."""
        entry = self.find(uid)
        return entry.pool if entry is not None else self._homes.get(uid, "")

    def of_origin(self, origin: str) -> list[tuple[str, JobStatus]]:
        """Pool and status of each job that belongs to a cluster."""
        with self._lock:
            return [
                (pool, entry.status)
                for pool, jobs in self._pools.items()
                for entry in jobs.values()
                if entry.status.origin == origin
            ]

    def count(self, pool: str) -> int:
        """How many jobs of a pool are known."""
        return len(self._pools.get(pool, {}))

    def census(self) -> dict[str, dict[str, int]]:
        """How many jobs of each pool are in each phase; and how many of the ended have failed."""
        with self._lock:
            entries = [(p, list(jobs.values())) for p, jobs in self._pools.items()]
        counts: dict[str, dict[str, int]] = {}
        for pool, jobs in entries:
            of_pool = counts[pool] = dict(NOBODY)
            for entry in jobs:
                of_pool[entry.status.phase] += 1
                of_pool[FAILED] += entry.status.phase == ENDED and entry.status.exit_code != 0
        return counts


def _follows(known: JobStatus, status: JobStatus) -> bool:
    """Whether a status may take the place of the one that is known; an end is final."""
    if known.phase == ENDED and status.phase != ENDED:
        return False
    return status.version >= known.version


def _compact(status: JobStatus) -> JobStatus:
    """The same, with texts that many jobs have in common kept once."""
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
