"""Looking at a pool's directory: which jobs, deletions and records are new there.

Runs in a thread, one look at a time. Whatever cannot be read is an ``OSError`` and changes nothing.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Optional

from submitter.jobs.table import Found
from submitter.store.journal import Journal, Tombstone, load_request, read
from submitter.store.spool import Spool
from templates.common.errors import WireError
from templates.job.directory import REQUEST
from templates.job.records import Record, parse_lines

logger = logging.getLogger(__name__)

_TRUSTED_AFTER_S = 2.0  # a folder may change twice within one tick of its clock
_LOOK_AGAIN_S = 60.0  # shared file systems may be slow to tell
_SURELY_SEEN_S = 2 * _LOOK_AGAIN_S


class Sight(NamedTuple):
    """What one look has found."""

    found: Sequence[Found]
    vanished: Mapping[str, Optional[Tombstone]]  # jobs whose directory is gone
    stones: Mapping[str, Tombstone]  # deletions of known jobs
    records: Sequence[Record]


class Folder:
    """The names in a folder, listed again only when it may have changed."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._mtime = -1
        self._listed = 0.0

    def forget(self) -> None:
        """List it again the next time: what was found was lost."""
        self._mtime = -1

    def names(self) -> Optional[set[str]]:
        """None when they are what they were."""
        mtime = os.stat(self._path).st_mtime_ns
        now = time.time()
        if mtime == self._mtime and now - self._listed < _LOOK_AGAIN_S:
            return None
        names = set(os.listdir(self._path))
        self._listed = now
        self._mtime = mtime if abs(now - mtime / 1e9) > _TRUSTED_AFTER_S else -1
        return names


class Scanner:
    """One pool's directory, as one process has seen it so far."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._spool = Spool(journal.spool)
        self._jobs = Folder(journal.jobs)
        self._deleted = Folder(journal.deleted)
        self._known_stones: set[str] = set()
        self._unreadable: set[str] = set()
        self._absent: dict[str, float] = {}  # since when, where no directory was ever seen
        self._directories: set[str] = set()

    def look(self, known: frozenset[str], placed: frozenset[str] = frozenset()) -> Sight:
        """Everything that is new, given the names of the jobs that are known.

        Those in ``placed`` had a directory for certain.
        """
        try:
            return self._look(known, placed)
        except OSError:
            self._jobs.forget()
            self._deleted.forget()
            raise

    def _look(self, known: frozenset[str], placed: frozenset[str]) -> Sight:
        accepted = self._journal.accepted
        accepted.look()
        in_order = accepted.names()  # before the directories: a job goes from here to there
        names, waiting = self._jobs.names(), set(in_order)
        others = (names or set()) - waiting - known
        found = self._load([*(name for name in in_order if name not in known), *others])
        vanished: dict[str, Optional[Tombstone]] = {}
        if names is not None:
            for name in waiting & names:
                accepted.settle(name)
            gone = self._gone({*known} - names - waiting, self._directories | placed)
            vanished = {name: self._journal.tombstone(name) for name in gone}
            self._directories = names
        return Sight(found, vanished, self._stones(known), self._spool.look())

    def _gone(self, absent: set[str], had_one: set[str]) -> set[str]:
        """Those that had a directory; of others its making may not have been seen yet."""
        now = time.monotonic()
        self._absent = {name: self._absent.get(name, now) for name in absent}
        late = {name for name, since in self._absent.items() if now - since > _SURELY_SEEN_S}
        return absent & had_one | late

    def _stones(self, known: frozenset[str]) -> dict[str, Tombstone]:
        names = self._deleted.names()
        if names is None:
            return {}
        stones = {}
        self._known_stones &= names
        for name in (names & known) - self._known_stones:
            stone = self._journal.tombstone(name)
            if stone is not None and not stone.lost:  # else nobody has asked for its end yet
                stones[name] = stone
                self._known_stones.add(name)
        return stones

    def _load(self, names: Iterable[str]) -> list[Found]:
        found = []
        for name in names:
            try:
                loaded = load(self._journal, name)
            except WireError as error:
                if name not in self._unreadable:
                    logger.warning("job=%s: not one of ours: %s", name, error)
                    self._unreadable.add(name)
                continue
            if loaded is not None:
                found.append(loaded)
        return sorted(found, key=lambda one: one.accepted_ms)

    def reread(self, names: Sequence[str]) -> list[Record]:
        """All the records of these jobs, from their own lists."""
        return [record for name in names for record in records_of(self._journal, name)]


def records_of(journal: Journal, name: str) -> list[Record]:
    """What a job's script has recorded, from the job's own list."""
    lines = parse_lines(read(f"{journal.of(name)}/records") or b"")
    return [record for record in lines if record.job == name]


def load(journal: Journal, name: str) -> Optional[Found]:
    """A job from its directory; None when that has just been removed."""
    folder = journal.of(name)
    final = read(f"{folder}/final")
    stone = journal.tombstone(name)
    if final is not None:
        ended_s = os.stat(f"{folder}/final").st_mtime
        native = _native_in(final)
        return Found(name, None, native=native, final=final, ended_s=ended_s, stone=stone)
    request = read(f"{folder}/{REQUEST}")
    if request is None:
        return _waiting(journal, name, stone)
    job, accepted_ms = load_request(request)
    if job.name != name:
        raise WireError("request.json", "is another job's")
    native = (read(f"{folder}/native") or b"").decode(errors="replace").strip()
    records = records_of(journal, name)
    return Found(name, job, accepted_ms, native, records, stone=stone)


def _waiting(journal: Journal, name: str, stone: Optional[Tombstone]) -> Optional[Found]:
    """A job that has no directory yet."""
    accepted = journal.accepted.read(name)
    if accepted is None:
        return None
    job, accepted_ms = accepted
    return Found(name, job._replace(script="", files=()), accepted_ms, stone=stone)


def _native_in(final: bytes) -> str:
    """The job's identity in the batch system; empty for one that never had any, or not for long."""
    try:
        return str(json.loads(final).get("native", ""))
    except (ValueError, AttributeError):
        raise WireError("final", "cannot be read") from None
