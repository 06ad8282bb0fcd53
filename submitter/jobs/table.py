"""The jobs of a pool, in memory: loaded from the files, so losing it does no harm.

Only the event loop's thread touches it. A job that has ended keeps little more than the JSON of its
last status: there may be very many of those.
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Optional

from submitter.backends.base import JobRef
from submitter.jobs.job_status import SchedulerView, is_over, status_of
from submitter.store.journal import Tombstone
from templates.job.model import Job
from templates.job.records import JobState, Record, fold
from templates.job.status import ENDED, JobIdentity, JobStatus, accepted_status
from templates.protocol.publications import dump_status


class StoredJob(NamedTuple):
    """A job as read from its directory."""

    name: str
    job: Optional[Job]  # without script and files; None if it has ended
    accepted_ms: int = 0
    native: str = ""
    records: Sequence[Record] = ()
    final: Optional[bytes] = None
    ended_s: float = 0.0  # when it ended, if it has
    tombstone: Optional[Tombstone] = None


class TrackedJob:
    """One job: what its records and the batch system have reported, and its deletion."""

    __slots__ = (
        "_dumped",
        "accepted_ms",
        "cleaned",
        "deadline",
        "ended_s",
        "ended_since",
        "final",
        "job",
        "killed",
        "missing_s",
        "name",
        "records",
        "reported",
        "tombstone",
        "view",
    )

    def __init__(self, found: StoredJob, starts_again: bool = False) -> None:
        self.name = found.name
        self.job = found.job
        self.accepted_ms = found.accepted_ms
        self.view = SchedulerView(
            native=found.native, deleting=found.tombstone is not None, starts_again=starts_again
        )
        self.tombstone = found.tombstone
        self.final = found.final is not None
        self.ended_s = found.ended_s
        self._dumped = found.final
        self.records: dict[tuple[int, str, int], Record] = {}
        self.reported = JobState()
        self.add_records(found.records)
        self.cleaned = False
        self.ended_since: Optional[float] = None  # when the batch system first reported it
        self.missing_s = 0.0  # how long the batch system has not known the job
        self.deadline: Optional[float] = None  # of its grace period
        self.killed = False

    @property
    def native(self) -> str:
        """The job's identity in the batch system."""
        return self.view.native

    def ref(self, directory: str) -> JobRef:
        """Return the job as backends take it."""
        return JobRef(self.name, self.native, directory)

    def add_records(self, records: Iterable[Record]) -> bool:
        """Add records of the script; return whether one of them was new."""
        if self.final:
            return False
        before = len(self.records)
        for record in records:
            self.records[record.run, record.stream, record.number] = record
        if len(self.records) == before:
            return False
        self.reported = fold(self.records.values())
        self._dumped = None
        return True

    def update(self, view: SchedulerView) -> bool:
        """Replace what is known besides the records; return whether it differs."""
        if self.final or view == self.view:
            return False
        self.view, self._dumped = view, None
        return True

    def status(self) -> JobStatus:
        """Return the status; raise ``ValueError`` once the final one is written."""
        job = self.job
        if job is None:
            raise ValueError(f"{self.name} has no status but its last one")
        identity = JobIdentity(
            job.name, job.uid, job.namespace, job.pod, job.containers, job.origin
        )
        if not self.records and self.view._replace(starts_again=False) == _INITIAL:
            return accepted_status(identity)
        return status_of(identity, self.view, self.reported, len(self.records))

    @property
    def has_ended(self) -> bool:
        """Return whether the last status is known, written or not."""
        return self.final or is_over(self.view, self.reported)

    def dump(self) -> bytes:
        """Return the status as JSON."""
        if self._dumped is None:
            self._dumped = dump_status(self.status())
        return self._dumped

    def finish(self, dumped: bytes) -> None:
        """Take the final status; nothing changes it any more."""
        self._dumped, self.final, self.ended_s = dumped, True, time.time()

    def shrink(self) -> None:
        """Drop what only a job that has not ended needs."""
        self.job, self.reported, self.cleaned = None, _NO_REPORT, True
        self.records = _NO_RECORDS
        self.view = _ENDED


_INITIAL = SchedulerView()
_ENDED = SchedulerView(ENDED)
_NO_REPORT = JobState()
_NO_RECORDS: dict[tuple[int, str, int], Record] = {}


class Table:
    """All jobs of a pool, and their changes that have not been published yet."""

    def __init__(self, starts_again: bool = False) -> None:
        self._starts_again = starts_again  # as the backend says
        self._jobs: dict[str, TrackedJob] = {}
        self.live: dict[str, TrackedJob] = {}
        """Jobs that have not ended, or of which something is left in the batch system."""
        self.being_deleted: dict[str, TrackedJob] = {}
        """Jobs whose deletion was requested."""
        self._names: Optional[list[str]] = None
        self._changed: dict[str, None] = {}
        self._removed: list[str] = []
        self._last_states: list[bytes] = []  # of removed jobs

    def __len__(self) -> int:
        return len(self._jobs)

    def get(self, name: str) -> Optional[TrackedJob]:
        """Return the job of this name; None if there is none."""
        return self._jobs.get(name)

    def entries(self) -> list[TrackedJob]:
        """Return all jobs."""
        return list(self._jobs.values())

    def names(self) -> frozenset[str]:
        """Return a snapshot of all names."""
        return frozenset(self._jobs)

    def submitted_names(self) -> frozenset[str]:
        """Return the names of submitted jobs: those certainly had a directory."""
        return frozenset(name for name, entry in self._jobs.items() if entry.native)

    def add(self, found: StoredJob) -> Optional[TrackedJob]:
        """Add a job and return it; None if it is there already."""
        if found.name in self._jobs:
            return None
        entry = self._jobs[found.name] = self.live[found.name] = TrackedJob(
            found, self._starts_again
        )
        if found.tombstone is not None:
            self.being_deleted[found.name] = entry
        self._names = None
        self.mark_changed(entry)
        return entry

    def mark_changed(self, entry: TrackedJob) -> None:
        """Have the job published, unless it was dropped while a step still worked on it."""
        if self._jobs.get(entry.name) is entry:
            self._changed[entry.name] = None

    def drop(self, name: str) -> None:
        """Remove a job that the site no longer has."""
        entry = self._jobs.pop(name, None)
        if entry is not None:
            self._names = None
            if name in self._changed:
                del self._changed[name]
                self._last_states.append(entry.dump())
            self.live.pop(name, None)
            self.being_deleted.pop(name, None)
            self._removed.append(name)

    def mark_deleted(self, entry: TrackedJob, tombstone: Tombstone) -> None:
        """Note that the job is to be deleted."""
        entry.tombstone = tombstone
        entry.deadline, entry.killed = None, False
        self.being_deleted[entry.name] = entry
        if entry.update(entry.view._replace(deleting=True)):
            self.mark_changed(entry)

    def mark_cleaned(self, entry: TrackedJob) -> None:
        """Note that the job has ended and nothing of it is left in the batch system."""
        entry.shrink()
        self.live.pop(entry.name, None)

    def take_changes(self) -> tuple[list[bytes], list[str]]:
        """Return the states that changed since the last call, and the names of removed jobs."""
        dumped = [*self._last_states, *(self._jobs[name].dump() for name in self._changed)]
        gone, self._removed = self._removed, []
        self._changed, self._last_states = {}, []
        return dumped, gone

    def page(self, cursor: str, size: int) -> tuple[list[bytes], str]:
        """Return states in the order of names, from after the cursor, and the next cursor.

        That one is empty at the end.
        """
        if self._names is None:
            self._names = sorted(self._jobs)
        start = bisect.bisect_right(self._names, cursor) if cursor else 0
        dumped: list[bytes] = []
        for name in self._names[start:]:
            dumped.append(self._jobs[name].dump())
            size -= len(dumped[-1]) + 1
            if size < 0:
                return dumped, name
        return dumped, ""
