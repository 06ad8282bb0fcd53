"""Jobs that were accepted and have no directory of their own yet: files that are appended to.

    accepted/<host>.<random>   records, one after the other: a header, and the job as it was sent

To accept jobs costs one write and one wait for the disk, however many come together; a job gets its
directory when it is first offered to the batch system. Each process appends to a file of its own,
and holds its lock. All submitters of a pool read all files; only the holder of one overwrites
records that are settled, as secrets may be in them, and removes the file when nothing else is left.
What nobody holds any more is taken over.
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
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable, NamedTuple, Optional

from submitter.common.filelock import take
from submitter.common.fsync import sync_folder
from templates.common.errors import WireError
from templates.job.model import Job
from templates.protocol.messages import describe, read_job

logger = logging.getLogger(__name__)

LARGEST_FILE = 64 * 1024 * 1024  # a record more may follow; then the next file begins
LARGEST_EMPTY_FILE = 1024 * 1024  # one with nothing but settled records goes when it is larger

_HEADER = re.compile(rb"job (\d{12}) ([0-9a-f]{8})\n")  # the size of the body, its CRC-32
_HEADER_SIZE = 26
_SETTLED = b"\0"  # what the body of a settled record consists of
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class Place(NamedTuple):
    """Where the body of a record stands."""

    start: int
    size: int
    crc: int

    def body(self, descriptor: int) -> Optional[bytes]:
        """What stands there; None if it has been overwritten or damaged."""
        found = os.pread(descriptor, self.size, self.start)
        return found if zlib.crc32(found) == self.crc else None


class _File:
    """One of the files, and what of it is not settled."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.descriptor = -1  # open and locked; negative: another process has it
        self.size = 0  # as far as it was read or written
        self.open: dict[str, Place] = {}
        self.settled: list[Place] = []  # and not overwritten yet

    @property
    def is_ours(self) -> bool:
        """Whether we hold it."""
        return self.descriptor >= 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing in it is needed, nor to be overwritten."""
        return not self.open and not self.settled

    def take_in(self, descriptor: int) -> None:
        """Read the records that were appended since."""
        end_of_file = os.fstat(descriptor).st_size
        while True:
            header = _HEADER.fullmatch(os.pread(descriptor, _HEADER_SIZE, self.size))
            if header is None:
                return  # the end, or half of a header
            place = Place(self.size + _HEADER_SIZE, int(header[1]), int(header[2], 16))
            end = place.start + place.size
            if end > end_of_file:
                return  # half of a record: it is still being written, or never was
            name = _name_in(place.body(descriptor) or b"")
            if name:
                self.open[name] = place
            elif os.pread(descriptor, 1, place.start) != _SETTLED:
                logger.warning("%s: the record at byte %s cannot be read", self.path, self.size)
            self.size = end

    def append(self, bodies: Mapping[str, bytes]) -> dict[str, Place]:
        """Write a record of each and wait for the disk; raises ``OSError``."""
        places, parts, at = {}, [], self.size
        for name, body in bodies.items():
            place = places[name] = Place(at + _HEADER_SIZE, len(body), zlib.crc32(body))
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
        """The job no longer needs its record."""
        place = self.open.pop(name, None)
        if place is not None:
            self.settled.append(place)

    def overwrite(self, settled: Sequence[Place]) -> None:
        """Leave nothing of records that are settled."""
        for place in settled:
            _write(self.descriptor, _SETTLED * place.size, place.start)
        self.settled = self.settled[len(settled) :]

    def make(self) -> bool:
        """Begin it, and hold it if it can be; raises ``OSError``."""
        return self._hold(os.open(self.path, _NEW, 0o600))

    def take_over(self) -> bool:
        """Hold it, unless a process that lives holds it."""
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        if not self._hold(descriptor):
            return False
        self.size = 0  # all of it once more: a shared file system may have shown half a record
        settled = set(self.settled)
        self.open.clear()
        self.settled.clear()
        self.take_in(descriptor)
        for name in [name for name, place in self.open.items() if place in settled]:
            self.settle(name)
        return True

    def _hold(self, descriptor: int) -> bool:
        if take(descriptor, wait=False) and _is_there(descriptor):
            self.descriptor = descriptor
            return True
        os.close(descriptor)
        return False

    def remove(self) -> None:
        """Nothing in it is needed."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        self.close()

    def close(self) -> None:
        """Let go of it."""
        if self.is_ours:
            os.close(self.descriptor)
            self.descriptor = -1


class Accepted:
    """The records of one pool; every method blocks, and any thread may call it."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._appending = threading.Lock()
        self._files: dict[str, _File] = {}
        self._current: Optional[_File] = None

    # --- what comes in --------------------------------------------------------------------------

    def append(self, jobs: Sequence[Job], accepted_ms: int) -> None:
        """All of them, with one wait for the disk; raises ``OSError``."""
        bodies = {job.name: _body(job, accepted_ms) for job in jobs}
        with self._appending:
            file = self._to_append_to()
            try:
                places = file.append(bodies)
            except OSError:
                self._current = None  # nobody knows what the disk has of it
                raise
            with self._lock:
                file.open.update(places)
                file.size = max(place.start + place.size for place in places.values())

    def _to_append_to(self) -> _File:
        file = self._current
        if file is not None and file.size < LARGEST_FILE:
            if _is_there(file.descriptor):
                return file
            file.close()  # somebody has removed it
        while True:
            name = f"{os.uname().nodename}.{uuid.uuid4().hex}"
            file = _File(f"{self._folder}/{name}")
            if file.make():
                break  # else another submitter took it for one that nobody holds
        sync_folder(self._folder)
        with self._lock:
            self._files[name] = self._current = file
        return file

    # --- what is there --------------------------------------------------------------------------

    def look(self) -> None:
        """Take in what others have appended; raises ``OSError``."""
        with self._lock:
            names = set(os.listdir(self._folder))
            for name in names - self._files.keys():
                self._files[name] = _File(f"{self._folder}/{name}")
            for file in self._files.values():
                if not file.is_ours:
                    with contextlib.suppress(FileNotFoundError), _opened(file.path) as descriptor:
                        file.take_in(descriptor)
            for name in self._files.keys() - names:
                file = self._files.pop(name)
                if file is not self._current:
                    file.close()

    def names(self) -> list[str]:
        """The jobs that are not settled, as far as was looked; those of a file in their order."""
        with self._lock:
            return [name for file in self._files.values() for name in file.open]

    def __contains__(self, name: str) -> bool:
        with self._lock:
            return any(name in file.open for file in self._files.values())

    def read(self, name: str) -> Optional[tuple[Job, int]]:
        """A job and when it was accepted; None if its record is not there any more, or damaged.

        Raises ``WireError`` for what another version has written.
        """
        with self._lock:
            for file in self._files.values():
                place = file.open.get(name)
                body = None if place is None else _read_at(file.path, place)
                if body is not None:
                    return _job(body)
                file.open.pop(name, None)  # its holder has settled it
        return None

    # --- what goes ------------------------------------------------------------------------------

    def settle(self, name: str) -> None:
        """The job has its directory, or is to have none."""
        with self._lock:
            for file in self._files.values():
                file.settle(name)

    @property
    def has_settled(self) -> bool:
        """Whether ``tidy`` has something to overwrite."""
        with self._lock:
            return any(file.settled for file in self._files.values() if file.is_ours)

    def tidy(self, sync: Callable[[], None]) -> None:
        """Overwrite what is settled, remove what holds nothing else, take over what nobody holds.

        ``sync`` puts on disk what took the place of the records; raises ``OSError``.
        """
        with self._lock:
            ours = {n: f for n, f in self._files.items() if f.is_ours or f.take_over()}
            settled = {name: list(file.settled) for name, file in ours.items() if file.settled}
        if settled:
            sync()
        with self._appending, self._lock:
            for name, file in ours.items():
                if not file.is_ours:
                    continue  # it was removed by somebody meanwhile
                file.overwrite(settled.get(name, ()))
                if file.is_empty and (file is not self._current or file.size > LARGEST_EMPTY_FILE):
                    file.remove()
                    self._files.pop(name, None)
                    if file is self._current:
                        self._current = None

    def close(self) -> None:
        """Let go of all files; one in which nothing is left goes."""
        with self._appending, self._lock:
            for file in self._files.values():
                if file.is_ours and file.is_empty:
                    file.remove()
                file.close()
            self._files.clear()
            self._current = None


def _is_there(descriptor: int) -> bool:
    """Whether an open file has not been removed."""
    return os.fstat(descriptor).st_nlink > 0


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    """A file that others write; raises ``OSError``."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _read_at(path: str, place: Place) -> Optional[bytes]:
    try:
        with _opened(path) as descriptor:
            return place.body(descriptor)
    except FileNotFoundError:
        return None


def _write(descriptor: int, content: bytes, at: int) -> None:
    view = memoryview(content)
    while view:
        written = os.pwrite(descriptor, view, at)
        view, at = view[written:], at + written


def _body(job: Job, accepted_ms: int) -> bytes:
    """A line that describes the job, and then its script and files."""
    contents = [job.script.encode(), *(file.content for file in job.files)]
    sizes = [len(content) for content in contents]
    described = {**describe(job), "accepted_ms": accepted_ms, "sizes": sizes}
    line = json.dumps(described, separators=(",", ":")).encode()
    return b"".join((line, b"\n", *contents))


def _described(body: bytes) -> tuple[dict[str, Any], int]:
    """What the line says, and where what follows it begins; raises ``ValueError``."""
    end = body.index(b"\n")
    described = json.loads(body[:end])
    if not isinstance(described, dict):
        raise ValueError("not an object")
    return described, end + 1


def _name_in(body: bytes) -> str:
    """The job that a record is of; empty where that cannot be told."""
    try:
        return str(_described(body)[0].get("name", ""))
    except ValueError:
        return ""


def _job(body: bytes) -> tuple[Job, int]:
    """The job in a record and when it was accepted; raises ``WireError``."""
    try:
        described, at = _described(body)
        contents = []
        for size in described["sizes"]:
            contents.append(body[at : at + size])
            at += size
        script, *files = contents
        return read_job(described, script, files), int(described["accepted_ms"])
    except (ValueError, KeyError, TypeError):
        raise WireError("accepted", "holds a job of another version") from None
