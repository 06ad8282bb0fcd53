"""Scans of a pool's directory for new jobs, deletions and records.

Runs in a thread, one scan at a time. Whatever cannot be read is an ``OSError`` and changes nothing.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, Optional

from submitter.common.guarded_files import LARGE, OddEntry, load_object, read, read_end, read_id
from submitter.jobs.table import StoredJob
from submitter.store.journal import Journal, Tombstone, load_request
from submitter.store.spool import Spool
from templates.common.errors import WireError
from templates.job.directory import REQUEST
from templates.job.records import Record, parse_lines

logger = logging.getLogger(__name__)

_MTIME_RELIABLE_AFTER_S = 2.0  # a folder may change twice within one tick of its clock
_RELIST_AFTER_S = 60.0  # shared file systems may show changes late
_VISIBLE_AFTER_S = 2 * _RELIST_AFTER_S


class ScanResult(NamedTuple):
    """The changes that one scan found."""

    found: Sequence[StoredJob]
    vanished: Mapping[str, Optional[Tombstone]]  # jobs whose directory is gone
    tombstones: Mapping[str, Tombstone]  # new deletions of known jobs
    records: Sequence[Record]


class FolderListing:
    """The names in a folder, listed again only when it may have changed."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._mtime = -1
        self._listed = 0.0

    def invalidate(self) -> None:
        """List the folder again the next time, as the last result was lost."""
        self._mtime = -1

    def changed_names(self) -> Optional[set[str]]:
        """Return the names; None if the folder has not changed."""
        mtime = os.stat(self._path).st_mtime_ns
        now = time.time()
        if mtime == self._mtime and now - self._listed < _RELIST_AFTER_S:
            return None
        names = set(os.listdir(self._path))
        self._listed = now
        self._mtime = mtime if abs(now - mtime / 1e9) > _MTIME_RELIABLE_AFTER_S else -1
        return names


class Scanner:
    """One pool's directory, as far as this process has seen it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._spool = Spool(journal.spool)
        self._jobs = FolderListing(journal.jobs)
        self._deleted = FolderListing(journal.deleted)
        self._known_tombstones: set[str] = set()
        self._unreadable: set[str] = set()
        self._absent_since: dict[str, float] = {}  # of jobs without a directory
        self._directories: set[str] = set()

    def scan(self, known: frozenset[str], submitted: frozenset[str] = frozenset()) -> ScanResult:
        """Return what is new, given the names of the known jobs.

        Those in ``submitted`` certainly had a directory.
        """
        try:
            return self._scan(known, submitted)
        except OSError:
            self._jobs.invalidate()
            self._deleted.invalidate()
            raise

    def _scan(self, known: frozenset[str], submitted: frozenset[str]) -> ScanResult:
        accepted = self._journal.accepted
        accepted.look()
        in_order = accepted.names()  # before the directories: a job goes from here to there
        names, waiting = self._jobs.changed_names(), set(in_order)
        others = (names or set()) - waiting - known
        found = self._load_jobs([*(name for name in in_order if name not in known), *others])
        vanished: dict[str, Optional[Tombstone]] = {}
        if names is not None:
            for name in waiting & names:
                accepted.settle(name)
            gone = self._find_vanished({*known} - names - waiting, self._directories | submitted)
            vanished = {name: self._journal.tombstone(name) for name in gone}
            self._directories = names
        return ScanResult(found, vanished, self._new_tombstones(known), self._spool.read_new())

    def _find_vanished(self, absent: set[str], had_directory: set[str]) -> set[str]:
        """Return the jobs that have lost their directory.

        Where none was ever seen, it may have been made already and not be visible yet.
        """
        now = time.monotonic()
        self._absent_since = {name: self._absent_since.get(name, now) for name in absent}
        late = {
            name for name, since in self._absent_since.items() if now - since > _VISIBLE_AFTER_S
        }
        return absent & had_directory | late

    def _new_tombstones(self, known: frozenset[str]) -> dict[str, Tombstone]:
        names = self._deleted.changed_names()
        if names is None:
            return {}
        tombstones = {}
        self._known_tombstones &= names
        for name in (names & known) - self._known_tombstones:
            tombstone = self._journal.tombstone(name)
            if tombstone is not None and not tombstone.lost:  # the cluster did not ask for that one
                tombstones[name] = tombstone
                self._known_tombstones.add(name)
        return tombstones

    def _load_jobs(self, names: Iterable[str]) -> list[StoredJob]:
        found = []
        for name in names:
            try:
                loaded = load(self._journal, name)
            except (WireError, OddEntry) as error:
                if name not in self._unreadable:
                    logger.warning("job=%s: not one of ours: %s", name, error)
                    self._unreadable.add(name)
                continue
            if loaded is not None:
                found.append(loaded)
        return sorted(found, key=lambda job: job.accepted_ms)

    def read_all_records(self, names: Sequence[str]) -> list[Record]:
        """Return all records of these jobs, from their own lists."""
        return [record for name in names for record in read_records(self._journal, name)]


def read_records(journal: Journal, name: str) -> list[Record]:
    """Return the records of a job, from its own list."""
    try:
        content = read_end(f"{journal.of(name)}/records", LARGE)
    except OddEntry as error:
        logger.warning("job=%s: its records count for nothing: %s", name, error)
        return []
    return [record for record in parse_lines(content) if record.job == name]


def load(journal: Journal, name: str) -> Optional[StoredJob]:
    """Return a job as read from its directory; None if that has just been removed."""
    folder = journal.of(name)
    with suppress(FileNotFoundError):
        journal.check_directory(name)
    final = journal.read_final(name)
    tombstone = journal.tombstone(name)
    if final is not None:
        ended_s = os.stat(f"{folder}/final").st_mtime
        native = str(load_object(final).get("native", ""))
        return StoredJob(
            name, None, native=native, final=final, ended_s=ended_s, tombstone=tombstone
        )
    request = read(f"{folder}/{REQUEST}", LARGE)
    if request is None:
        return _load_accepted(journal, name, tombstone)
    job, accepted_ms = load_request(request)
    if job.name != name:
        raise WireError("request.json", "is another job's")
    native = read_id(f"{folder}/native") or ""
    records = read_records(journal, name)
    return StoredJob(name, job, accepted_ms, native, records, tombstone=tombstone)


def _load_accepted(
    journal: Journal, name: str, tombstone: Optional[Tombstone]
) -> Optional[StoredJob]:
    """Return a job that has no directory yet; None if there is none."""
    accepted = journal.accepted.read(name)
    if accepted is None:
        return None
    job, accepted_ms = accepted
    return StoredJob(name, job._replace(script="", files=()), accepted_ms, tombstone=tombstone)
