"""Accepted jobs that have no directory of their own yet, in append-only files.

    accepted/<host>.<random>   records, one after the other: a header, and the job as it was sent

Accepting jobs costs one write and one sync, however many come together; a job gets its directory
when it is first submitted. Each process appends to a file of its own, and holds its lock. All
submitters of a pool read all files; only the holder of one overwrites settled records, as secrets
may be in them, and removes the file when no other records are left. Files without a holder are
taken over.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import threading
import uuid
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple, Optional

from submitter.common.filelock import acquire
from submitter.common.fsync import sync_folder
from submitter.common.guarded_files import OddEntry, load_object, open_file, opened
from templates.common.errors import WireError
from templates.job.model import Job
from templates.nats import codec
from templates.protocol.messages import describe, read_job

logger = logging.getLogger(__name__)

LARGEST_FILE = 64 * 1024 * 1024  # one more record may follow; then the next file begins
LARGEST_RECORD = codec.LARGEST + 1024 * 1024  # a whole message that holds one job
LARGEST_EMPTY_FILE = 1024 * 1024  # a larger one is removed if all its records are settled

_HEADER = re.compile(rb"job (\d{12}) ([0-9a-f]{8})\n")  # the size of the body, its CRC-32
_HEADER_SIZE = 26
_SETTLED = b"\0"  # the byte that fills the body of a settled record
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class RecordPosition(NamedTuple):
    """The position of the body of a record."""

    start: int
    size: int
    crc: int

    def body(self, descriptor: int) -> Optional[bytes]:
        """Return the body; None if it has been overwritten or damaged."""
        found = os.pread(descriptor, self.size, self.start)
        return found if zlib.crc32(found) == self.crc else None


class InboxFile:
    """One file, and its records that are not settled."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.descriptor = -1  # open and locked; negative: another process has it
        self.size = 0  # as far as it was read or written
        self.open: dict[str, RecordPosition] = {}
        self.settled: list[RecordPosition] = []  # and not overwritten yet
        self.is_odd = False  # and that was logged

    @property
    def is_ours(self) -> bool:
        """Return whether we hold it."""
        return self.descriptor >= 0

    @property
    def is_empty(self) -> bool:
        """Return whether it has no record that is needed or to be overwritten."""
        return not self.open and not self.settled

    def take_in(self, descriptor: int) -> None:
        """Read the records that were appended since the last call."""
        end_of_file = os.fstat(descriptor).st_size
        while True:
            header = _HEADER.fullmatch(os.pread(descriptor, _HEADER_SIZE, self.size))
            if header is None:
                return  # the end, or half of a header
            place = RecordPosition(self.size + _HEADER_SIZE, int(header[1]), int(header[2], 16))
            end = place.start + place.size
            if end > end_of_file:
                return  # half of a record: it is still being written, or never was
            name = ""
            if place.size <= LARGEST_RECORD:
                name = _name_in(place.body(descriptor) or b"")
            if name:
                self.open[name] = place
            elif os.pread(descriptor, 1, place.start) != _SETTLED:
                logger.warning("%s: the record at byte %s cannot be read", self.path, self.size)
            self.size = end

    def append(self, bodies: Mapping[str, bytes]) -> dict[str, RecordPosition]:
        """Write a record for each and sync; raise ``OSError``."""
        places, parts, at = {}, [], self.size
        for name, body in bodies.items():
            place = places[name] = RecordPosition(at + _HEADER_SIZE, len(body), zlib.crc32(body))
            parts += [b"job %012d %08x\n" % place[1:], body]
            at = place.start + place.size
        try:
            _write(self.descriptor, b"".join(parts), self.size)
            os.fdatasync(self.descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self.descriptor, self.size)
            raise
        return places

    def settle(self, name: str) -> None:
        """Note that the job no longer needs its record."""
        place = self.open.pop(name, None)
        if place is not None:
            self.settled.append(place)

    def overwrite(self, settled: Sequence[RecordPosition]) -> None:
        """Overwrite settled records."""
        for place in settled:
            _write(self.descriptor, _SETTLED * place.size, place.start)
        self.settled = self.settled[len(settled) :]

    def make(self) -> bool:
        """Create the file and return whether we hold it; raise ``OSError``."""
        return self._hold(os.open(self.path, _NEW, 0o600))

    def take_over(self) -> bool:
        """Hold the file, unless a live process does; return whether we hold it."""
        try:
            descriptor = open_file(self.path, os.O_RDWR)
        except (FileNotFoundError, OddEntry):
            return False
        if not self._hold(descriptor):
            return False
        self.size = 0  # read again: a shared file system may have shown half a record
        settled = set(self.settled)
        self.open.clear()
        self.settled.clear()
        self.take_in(descriptor)
        for name in [name for name, place in self.open.items() if place in settled]:
            self.settle(name)
        return True

    def _hold(self, descriptor: int) -> bool:
        if acquire(descriptor, wait=False) and _is_there(descriptor):
            self.descriptor = descriptor
            return True
        os.close(descriptor)
        return False

    def remove(self) -> None:
        """Remove the file."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        self.close()

    def close(self) -> None:
        """Release the file."""
        if self.is_ours:
            os.close(self.descriptor)
            self.descriptor = -1


class Inbox:
    """The records of one pool; every method blocks, and may be called in any thread."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._appending = threading.Lock()
        self._files: dict[str, InboxFile] = {}
        self._current: Optional[InboxFile] = None

    # --- new jobs -------------------------------------------------------------------------------

    def append(self, jobs: Sequence[Job], accepted_ms: int) -> None:
        """Append a record for each job, with one sync; raise ``OSError``."""
        bodies = {job.name: _body(job, accepted_ms) for job in jobs}
        with self._appending:
            file = self._to_append_to()
            try:
                places = file.append(bodies)
            except OSError:
                self._current = None  # it is unknown how much of it is on disk
                raise
            with self._lock:
                file.open.update(places)
                file.size = max(place.start + place.size for place in places.values())

    def _to_append_to(self) -> InboxFile:
        file = self._current
        if file is not None and file.size < LARGEST_FILE:
            if _is_there(file.descriptor):
                return file
            file.close()  # it was removed by another process
        while True:
            name = f"{os.uname().nodename}.{uuid.uuid4().hex}"
            file = InboxFile(f"{self._folder}/{name}")
            if file.make():
                break  # else another submitter took it for a file without a holder
        sync_folder(self._folder)
        with self._lock:
            self._files[name] = self._current = file
        return file

    # --- known jobs -----------------------------------------------------------------------------

    def look(self) -> None:
        """Read what other processes have appended; raise ``OSError``."""
        with self._lock:
            names = set(os.listdir(self._folder))
            for name in names - self._files.keys():
                self._files[name] = InboxFile(f"{self._folder}/{name}")
            for file in self._files.values():
                if not file.is_ours:
                    self._take_in(file)
            for name in self._files.keys() - names:
                file = self._files.pop(name)
                if file is not self._current:
                    file.close()

    def _take_in(self, file: InboxFile) -> None:
        with contextlib.suppress(FileNotFoundError):
            try:
                with opened(file.path) as descriptor:
                    file.take_in(descriptor)
            except OddEntry as error:
                if not file.is_odd:
                    logger.warning("%s: counts for nothing: %s", file.path, error.strerror)
                file.is_odd = True

    def names(self) -> list[str]:
        """Return the jobs not settled at the last look; those of a file in their order."""
        with self._lock:
            return [name for file in self._files.values() for name in file.open]

    def __contains__(self, name: str) -> bool:
        with self._lock:
            return any(name in file.open for file in self._files.values())

    def read(self, name: str) -> Optional[tuple[Job, int]]:
        """Return a job and when it was accepted; None if its record is gone or damaged.

        Raise ``WireError`` for a record of another version.
        """
        with self._lock:
            for file in self._files.values():
                place = file.open.get(name)
                body = None if place is None else _read_at(file.path, place)
                if body is not None:
                    return _job(body)
                file.open.pop(name, None)  # its holder has settled it
        return None

    # --- settled jobs ---------------------------------------------------------------------------

    def settle(self, name: str) -> None:
        """Note that the job has its directory, or is to get none."""
        with self._lock:
            for file in self._files.values():
                file.settle(name)

    @property
    def has_settled(self) -> bool:
        """Return whether ``tidy`` has something to overwrite."""
        with self._lock:
            return any(file.settled for file in self._files.values() if file.is_ours)

    def tidy(self, sync: Callable[[], None]) -> None:
        """Overwrite settled records, remove files without others, take over files without a holder.

        ``sync`` puts on disk what replaces the records; raise ``OSError``.
        """
        with self._lock:
            ours = {n: f for n, f in self._files.items() if f.is_ours or f.take_over()}
            settled = {name: list(file.settled) for name, file in ours.items() if file.settled}
        if settled:
            sync()
        with self._appending, self._lock:
            for name, file in ours.items():
                if not file.is_ours:
                    continue  # it was removed meanwhile
                file.overwrite(settled.get(name, ()))
                if file.is_empty and (file is not self._current or file.size > LARGEST_EMPTY_FILE):
                    file.remove()
                    self._files.pop(name, None)
                    if file is self._current:
                        self._current = None

    def close(self) -> None:
        """Release all files, and remove empty ones."""
        with self._appending, self._lock:
            for file in self._files.values():
                if file.is_ours and file.is_empty:
                    file.remove()
                file.close()
            self._files.clear()
            self._current = None


def _is_there(descriptor: int) -> bool:
    """Return whether an open file has not been removed."""
    return os.fstat(descriptor).st_nlink > 0


def _read_at(path: str, place: RecordPosition) -> Optional[bytes]:
    try:
        with opened(path) as descriptor:
            return place.body(descriptor)
    except (FileNotFoundError, OddEntry):
        return None


def _write(descriptor: int, content: bytes, at: int) -> None:
    view = memoryview(content)
    while view:
        written = os.pwrite(descriptor, view, at)
        view, at = view[written:], at + written


def _body(job: Job, accepted_ms: int) -> bytes:
    """Return a line that describes the job, followed by its script and files."""
    contents = [job.script.encode(), *(file.content for file in job.files)]
    sizes = [len(content) for content in contents]
    described = {**describe(job), "accepted_ms": accepted_ms, "sizes": sizes}
    line = json.dumps(described, separators=(",", ":")).encode()
    return b"".join((line, b"\n", *contents))


def _described(body: bytes) -> tuple[dict[str, Any], int]:
    """Return the parsed line, and where the script begins; raise ``ValueError``."""
    end = body.index(b"\n")
    return load_object(body[:end]), end + 1


def read_accepted_ms(described: Mapping[str, Any]) -> int:
    """Return when a job was accepted; raise ``WireError``."""
    accepted_ms = described.get("accepted_ms")
    if type(accepted_ms) is not int:
        raise WireError("accepted_ms", "must be a whole number")
    return accepted_ms


def _name_in(body: bytes) -> str:
    """Return the name of the job in a record; empty if it cannot be read."""
    try:
        return str(_described(body)[0].get("name", ""))
    except ValueError:
        return ""


def _job(body: bytes) -> tuple[Job, int]:
    """Return the job in a record and when it was accepted; raise ``WireError``."""
    try:
        described, at = _described(body)
        contents = []
        for size in described["sizes"]:
            contents.append(body[at : at + size])
            at += size
        script, *files = contents
        return read_job(described, script, files), read_accepted_ms(described)
    except (ValueError, KeyError, TypeError):
        raise WireError("accepted", "holds a job of another version") from None
