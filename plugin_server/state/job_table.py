"""The table of all jobs, in memory: filled by publications of sites, read by status requests.

An entry belongs to the pool that published it, so that a site can lie about its own pool only; and
what it invents has to fit into a few bytes. Nobody asks for the jobs that a restarted plugin hears
of first, or for orphans: they are kept as long as there is room.
The status in an entry never changes: a new status is a new entry, so that readers need no lock.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Collection, Iterable
from typing import Callable, Optional

from plugin_server.state.homes import Homes
from templates.job.records import End
from templates.job.status import ENDED, PHASES, JobStatus

MAX_JOBS = 200_000  # of one pool
SPARE_BYTES = 48 * 1024 * 1024  # of one pool, for jobs that nobody asks for, and for long texts
KNOWN_BYTES = 4 * 1024  # and for each job that was sent there or is asked for
MAX_REMOVED = 10_000  # of one pool: pods whose job is gone; the oldest are removed first
FAILED = "failed"  # a job that has ended with another exit code than 0
ZERO_COUNTS = dict.fromkeys((*PHASES, FAILED), 0)
_OBJECT_BYTES = 512  # about what a status, or a container in it, takes besides its texts


class Entry:
    """Status of a job, and when it was last received."""

    __slots__ = ("is_known", "pool", "received", "status", "weight")

    def __init__(self, pool: str, status: JobStatus, received: float, *, is_known: bool) -> None:
        self.pool = pool
        self.status = status
        self.received = received
        self.is_known = is_known  # was sent there by a plugin, or is asked for
        self.weight = _weight(status)


class _PoolJobs:
    """Jobs of one pool, in as many bytes as it may fill."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}  # by uid
        self.unknown: dict[str, None] = {}  # uids of those that nobody asks for, oldest first
        self.removed: dict[str, None] = {}
        self._weight = 0

    def add(self, entry: Entry) -> bool:
        """Add or replace an entry; return False if there is no room for it."""
        uid = entry.status.uid
        before = self.entries.get(uid)
        while not self._has_room(entry, before):
            other = next((other for other in self.unknown if other != uid), "")
            if not entry.is_known or not other:
                return False
            self.discard(other)
        self._weight += entry.weight - (before.weight if before is not None else 0)
        self.entries[uid] = entry  # at once: readers take no lock
        if entry.is_known:
            self.unknown.pop(uid, None)
        else:
            self.unknown[uid] = None
        return True

    def _has_room(self, entry: Entry, before: Optional[Entry]) -> bool:
        known = len(self.entries) - len(self.unknown)
        weight = self._weight + entry.weight - (before.weight if before is not None else 0)
        if before is None:
            known += entry.is_known
        is_one_more = before is None and len(self.entries) >= MAX_JOBS
        return weight <= SPARE_BYTES + known * KNOWN_BYTES and not is_one_more

    def discard(self, uid: str) -> None:
        """Remove an entry if it is there."""
        entry = self.entries.pop(uid, None)
        if entry is not None:
            self._weight -= entry.weight
            self.unknown.pop(uid, None)

    def mark_known(self, uid: str) -> None:
        """Note that somebody asks for a job."""
        if uid in self.unknown:
            self.entries[uid].is_known = True
            del self.unknown[uid]


class JobTable:
    """Table of the jobs of all pools."""

    def __init__(
        self,
        default_pool: str = "",
        clock: Callable[[], float] = time.monotonic,
        homes: Optional[Homes] = None,
    ) -> None:
        self._default_pool = default_pool
        self._clock = clock
        self._pools: dict[str, _PoolJobs] = {}
        self._homes = homes or Homes()
        self._lock = threading.Lock()

    # --- writing ------------------------------------------------------------------------------

    def put(self, pool: str, status: JobStatus) -> bool:
        """Store a status, unless it is outdated; return whether it was new."""
        return self._put(pool, status, _interned)

    def _put(self, pool: str, status: JobStatus, intern: Callable[[JobStatus], JobStatus]) -> bool:
        now = self._clock()
        with self._lock:
            jobs = self._jobs_of(pool)
            known = jobs.entries.get(status.uid)
            if known is not None and not _follows(known.status, status):
                return False
            if known is not None and known.status == status:
                known.received = now
                return False
            is_known = self._homes.get(status.uid) == pool or (known is not None and known.is_known)
            if not jobs.add(Entry(sys.intern(pool), intern(status), now, is_known=is_known)):
                return False
            jobs.removed.pop(status.uid, None)
            return True

    def _jobs_of(self, pool: str) -> _PoolJobs:
        return self._pools.setdefault(sys.intern(pool), _PoolJobs())

    def add_accepted(self, pool: str, status: JobStatus) -> None:
        """Store the status of a job that a site has just accepted.

        The site may have published a later one by now, or removed the job again.
        """
        self._homes.set(status.uid, pool)
        with self._lock:
            jobs = self._jobs_of(pool)
            if status.uid in jobs.removed:
                return
            jobs.mark_known(status.uid)
        self._put(pool, status, lambda interned: interned)

    def remove(self, pool: str, uids: Iterable[str]) -> None:
        """Remove jobs that the site no longer has."""
        with self._lock:
            jobs = self._jobs_of(pool)
            for uid in uids:
                jobs.discard(uid)
                jobs.removed[uid] = None
            while len(jobs.removed) > MAX_REMOVED:
                del jobs.removed[next(iter(jobs.removed))]

    def keep_only(self, pool: str, uids: Collection[str], received_before: float) -> int:
        """Remove jobs that are not in a complete list, unless they are newer; return how many."""
        with self._lock:
            stale = [
                uid
                for uid, entry in self._jobs_of(pool).entries.items()
                if uid not in uids and entry.received < received_before
            ]
        self.remove(pool, stale)
        return len(stale)

    def remember_pool(self, uid: str, pool: str) -> None:
        """Remember that a pod is asked for, and the pool that it names; empty: none."""
        if pool and pool != self._homes.get(uid):
            self._homes.set(uid, pool)
        entry = self.find(uid, pool)
        if entry is not None and not entry.is_known:
            with self._lock:
                self._jobs_of(entry.pool).mark_known(uid)

    # --- reading ------------------------------------------------------------------------------

    def find(self, uid: str, pool: str = "") -> Optional[Entry]:
        """Return the entry of a pod in the pool that it names, or has named; None if unknown.

        Without any, it is that of the default pool, or of the only one that claims the pod.
        """
        pool = pool or self._homes.find(uid)
        if pool:
            return self._entry(pool, uid)
        entry = self._entry(self._default_pool, uid)
        if entry is not None:
            return entry
        claims = [jobs.entries[uid] for jobs in [*self._pools.values()] if uid in jobs.entries]
        return claims[0] if len(claims) == 1 else None

    def _entry(self, pool: str, uid: str) -> Optional[Entry]:
        jobs = self._pools.get(pool)
        return jobs.entries.get(uid) if jobs is not None else None

    def home(self, uid: str) -> str:
        """Return the pool that a pod was sent to or names; empty if unknown."""
        return self._homes.find(uid)

    def pool_of(self, uid: str) -> str:
        """Return the pool of a pod, or the only one that claims it; empty if unknown."""
        entry = self.find(uid)
        return entry.pool if entry is not None else self._homes.get(uid)

    def of_origin(self, origin: str) -> list[tuple[str, JobStatus]]:
        """Return pool and status of each job that belongs to a cluster.

        What a pool says of pods that have another home does not count.
        """
        with self._lock:
            return [
                (pool, entry.status)
                for pool, jobs in self._pools.items()
                for uid, entry in jobs.entries.items()
                if entry.status.origin == origin and self._homes.get(uid) in ("", pool)
            ]

    def count(self, pool: str) -> int:
        """Return the number of jobs of a pool."""
        jobs = self._pools.get(pool)
        return len(jobs.entries) if jobs is not None else 0

    def count_by_phase(self) -> dict[str, dict[str, int]]:
        """Return how many jobs of each pool are in each phase, and how many have failed."""
        with self._lock:
            entries = [(p, list(jobs.entries.values())) for p, jobs in self._pools.items()]
        counts: dict[str, dict[str, int]] = {}
        for pool, of_the_pool in entries:
            of_pool = counts[pool] = dict(ZERO_COUNTS)
            for entry in of_the_pool:
                of_pool[entry.status.phase] += 1
                of_pool[FAILED] += entry.status.phase == ENDED and entry.status.exit_code != 0
        return counts


def _follows(known: JobStatus, status: JobStatus) -> bool:
    """Return whether a status may replace the known one; an end is final."""
    if known.phase == ENDED and status.phase != ENDED:
        return False
    return status.version >= known.version


def _weight(status: JobStatus) -> int:
    """Return about how many bytes a status takes."""
    texts = [status.native, status.node, status.reason, status.message, status.origin]
    for _, image, state in status.containers:
        texts += (image, state.reason, state.message)
        ends: tuple[Optional[End], ...] = (state.end, state.last_end)
        texts += [text for end in ends if end for text in (end.reason, end.message)]
    sizes = [len(text) if text.isascii() else 4 * len(text) for text in texts]
    return _OBJECT_BYTES * (1 + len(status.containers)) + sum(sizes)


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
