"""What a submitter knows of its pool's jobs, in memory: made from the files, and lost without harm.

Only the event loop's thread touches it. A job that has ended keeps little more than the JSON of its
last status: there may be very many of those.
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Optional

from submitter.backends.base import Ticket
from submitter.jobs.job_status import Outlook, is_over, status_of
from submitter.store.journal import Tombstone
from templates.job.model import Job
from templates.job.records import JobState, Record, fold
from templates.job.status import ENDED, JobIdentity, JobStatus, accepted_status
from templates.protocol.publications import dump_status


class Found(NamedTuple):
    """A job as its directory tells it."""

    name: str
    job: Optional[Job]  # without script and files; None if it has ended
    accepted_ms: int = 0
    native: str = ""
    records: Sequence[Record] = ()
    final: Optional[bytes] = None
    ended_s: float = 0.0  # when it ended, if it has
    stone: Optional[Tombstone] = None


class Entry:
    """One job."""

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
        "outlook",
        "records",
        "said",
        "stone",
    )

    def __init__(self, found: Found, starts_again: bool = False) -> None:
        self.name = found.name
        self.job = found.job
        self.accepted_ms = found.accepted_ms
        self.outlook = Outlook(
            native=found.native, deleting=found.stone is not None, starts_again=starts_again
        )
        self.stone = found.stone
        self.final = found.final is not None
        self.ended_s = found.ended_s
        self._dumped = found.final
        self.records: dict[tuple[int, str, int], Record] = {}
        self.said = JobState()
        self.hear(found.records)
        self.cleaned = False
        self.ended_since: Optional[float] = None  # when the batch system first said so
        self.missing_s = 0.0  # how long it has not known the job
        self.deadline: Optional[float] = None  # of its grace period
        self.killed = False

    @property
    def native(self) -> str:
        """Its identity in the batch system."""
        return self.outlook.native

    def ticket(self, directory: str) -> Ticket:
        """As the batch system is asked about it."""
        return Ticket(self.name, self.native, directory)

    def hear(self, records: Iterable[Record]) -> bool:
        """Take in records; whether one of them was new."""
        if self.final:
            return False
        before = len(self.records)
        for record in records:
            self.records[record.run, record.stream, record.number] = record
        if len(self.records) == before:
            return False
        self.said = fold(self.records.values())
        self._dumped = None
        return True

    def look(self, outlook: Outlook) -> bool:
        """Take in what is known besides; whether it is new."""
        if self.final or outlook == self.outlook:
            return False
        self.outlook, self._dumped = outlook, None
        return True

    def status(self) -> JobStatus:
        """Of a job that has not ended for good: that one's is written down."""
        job = self.job
        if job is None:
            raise ValueError(f"{self.name} has no status but its last one")
        identity = JobIdentity(
            job.name, job.uid, job.namespace, job.pod, job.containers, job.origin
        )
        if not self.records and self.outlook._replace(starts_again=False) == _NOTHING_YET:
            return accepted_status(identity)
        return status_of(identity, self.outlook, self.said, len(self.records))

    @property
    def has_ended(self) -> bool:
        """Whether its last status is known, written down or not."""
        return self.final or is_over(self.outlook, self.said)

    def dump(self) -> bytes:
        """Its status as JSON."""
        if self._dumped is None:
            self._dumped = dump_status(self.status())
        return self._dumped

    def finish(self, dumped: bytes) -> None:
        """From now on nothing changes any more."""
        self._dumped, self.final, self.ended_s = dumped, True, time.time()

    def shrink(self) -> None:
        """Forget what only a job needs that has not ended."""
        self.job, self.said, self.cleaned = None, _NOTHING, True
        self.records = _NO_RECORDS
        self.outlook = _OVER


_NOTHING_YET = Outlook()
_OVER = Outlook(ENDED)
_NOTHING = JobState()
_NO_RECORDS: dict[tuple[int, str, int], Record] = {}


class Table:
    """All jobs of a pool, and what of them has not been published yet."""

    def __init__(self, starts_again: bool = False) -> None:
        self._starts_again = starts_again  # as the backend says
        self._entries: dict[str, Entry] = {}
        self.live: dict[str, Entry] = {}
        """Those that have not ended, or of which something is left in the batch system."""
        self.buried: dict[str, Entry] = {}
        """Those whose end was asked for."""
        self._names: Optional[list[str]] = None
        self._changed: dict[str, None] = {}
        self._gone: list[str] = []
        self._last_words: list[bytes] = []  # of those that are gone

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, name: str) -> Optional[Entry]:
        """The job of that name."""
        return self._entries.get(name)

    def entries(self) -> list[Entry]:
        """All of them."""
        return list(self._entries.values())

    def names(self) -> frozenset[str]:
        """All names, at this moment."""
        return frozenset(self._entries)

    def handed_over(self) -> frozenset[str]:
        """The names of those that certainly had a directory."""
        return frozenset(name for name, entry in self._entries.items() if entry.native)

    def add(self, found: Found) -> Optional[Entry]:
        """A job that is new here; None if it is not."""
        if found.name in self._entries:
            return None
        entry = self._entries[found.name] = self.live[found.name] = Entry(found, self._starts_again)
        if found.stone is not None:
            self.buried[found.name] = entry
        self._names = None
        self.changed(entry)
        return entry

    def changed(self, entry: Entry) -> None:
        """It has to be published, unless it was dropped while somebody still worked on it."""
        if self._entries.get(entry.name) is entry:
            self._changed[entry.name] = None

    def drop(self, name: str) -> None:
        """The site no longer has this job."""
        entry = self._entries.pop(name, None)
        if entry is not None:
            self._names = None
            if name in self._changed:
                del self._changed[name]
                self._last_words.append(entry.dump())
            self.live.pop(name, None)
            self.buried.pop(name, None)
            self._gone.append(name)

    def bury(self, entry: Entry, stone: Tombstone) -> None:
        """The end of a job was asked for."""
        entry.stone = stone
        entry.deadline, entry.killed = None, False
        self.buried[entry.name] = entry
        if entry.look(entry.outlook._replace(deleting=True)):
            self.changed(entry)

    def settle(self, entry: Entry) -> None:
        """The job has ended, and nothing of it is left in the batch system."""
        entry.shrink()
        self.live.pop(entry.name, None)

    def news(self) -> tuple[list[bytes], list[str]]:
        """What has changed since this was last asked, and what is gone."""
        dumped = [*self._last_words, *(self._entries[name].dump() for name in self._changed)]
        gone, self._gone = self._gone, []
        self._changed, self._last_words = {}, []
        return dumped, gone

    def page(self, cursor: str, size: int) -> tuple[list[bytes], str]:
        """States in the order of names, after the cursor; and the next cursor, empty at the end."""
        if self._names is None:
            self._names = sorted(self._entries)
        start = bisect.bisect_right(self._names, cursor) if cursor else 0
        dumped: list[bytes] = []
        for name in self._names[start:]:
            dumped.append(self._entries[name].dump())
            size -= len(dumped[-1]) + 1
            if size < 0:
                return dumped, name
        return dumped, ""
