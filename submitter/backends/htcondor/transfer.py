"""Jobs whose directory the nodes do not see: it is sent along, and changes to it are sent back.

A job's directory goes as one archive, which keeps names and modes. Back comes one stream, the
output of the job (written by ``templates/script/bash/htcondor.sh.j2``): frames of new bytes of the
job's records and logs. They are put where a job that shares the directory would have written them,
so that the rest of the submitter sees no difference. A frame has the offset of its bytes: reading
one twice does no harm.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import tarfile
import uuid
from typing import BinaryIO, NamedTuple, Optional

from submitter.common.guarded_files import LARGE, open_file, opened, read_at
from submitter.store.journal import Journal
from templates.job.records import parse
from templates.script.jinja import render

logger = logging.getLogger(__name__)

INPUT, STUB, STREAM, ERRORS = "input.tar", "stub.sh", "stream", "errors"
PAUSE_S = 1  # between two checks of the job for new bytes
LONGEST_FRAME = 1024**2
LONGEST_HEADER = 400
# Files in a job's directory that belong to the submitter.
_NOT_SENT = {
    *(INPUT, STUB, STREAM, ERRORS),
    *("output", "lost", "request.json", "submitting", "native", "final", "lock"),
}
_HEADER = re.compile(
    rb"interlink-stream1 (started|output|records|logs/[a-z0-9-]+\.[0-9]{1,9}\.log(?:\.idx)?)"
    rb" ([0-9]{1,15}) ([0-9]{1,7})\n"
)


class Frame(NamedTuple):
    """Some bytes of a job's file."""

    file: str
    offset: int
    data: bytes


# --- input ----------------------------------------------------------------------------------------


def write_input(name: str, directory: str, bash: str) -> None:
    """Write the files that are transferred with a job; raise ``OSError`` if that fails."""
    text = render("htcondor.sh.j2", name=name, bash=bash, pause_s=PAUSE_S)
    with _open_private(f"{directory}/{STUB}", 0o700) as file:
        file.write(text.encode())
    entries = sorted(set(os.listdir(directory)) - _NOT_SENT)
    with (
        _open_private(f"{directory}/{INPUT}", 0o600) as file,
        tarfile.open(fileobj=file, mode="w") as archive,
    ):
        for entry in entries:
            archive.add(f"{directory}/{entry}", entry, filter=_strip_owner)


def _strip_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Remove the owner: the files belong to the user who unpacks them."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _open_private(path: str, mode: int) -> BinaryIO:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, mode), "wb")


def remove_input(directory: str) -> None:
    """Remove the files of the transfer; they contain secrets."""
    for name in (INPUT, STUB, STREAM):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(f"{directory}/{name}")


# --- output ---------------------------------------------------------------------------------------


def read_frame(file: BinaryIO) -> Optional[Frame]:
    """Return the next complete frame, None if there is none yet; skip what is no frame."""
    while True:
        start = file.tell()
        line = file.readline(LONGEST_HEADER)
        found = _HEADER.fullmatch(line)
        if found is None:
            if not line.endswith(b"\n") and len(line) < LONGEST_HEADER:
                file.seek(start)  # not all of it has arrived yet
                return None
            continue
        length = int(found[3])
        data = file.read(length + 1) if length <= LONGEST_FRAME else b""
        if length <= LONGEST_FRAME and len(data) <= length:
            file.seek(start)
            return None
        if data.endswith(b"\n"):
            return Frame(found[1].decode(), int(found[2]), data[:-1])
        file.seek(start + len(line))


class StreamUnpacker:
    """The streams of a pool's jobs, and how far this process has unpacked them."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._suffix = uuid.uuid4().hex[:8]  # other submitters of the pool write the same files
        self._read: dict[str, int] = {}  # bytes of a job's stream
        self._spooled: dict[str, int] = {}  # bytes of a job's records

    def unpack(self, name: str) -> None:
        """Write new frames to the job's files; log errors, so that other jobs go on."""
        try:
            self._unpack(name)
        except OSError as error:
            logger.warning("job=%s: what came back is not written: %s", name, error.strerror)

    def _unpack(self, name: str) -> None:
        directory = self._journal.of(name)
        before = self._read.get(name, 0)
        try:
            size = os.stat(f"{directory}/{STREAM}").st_size
        except (FileNotFoundError, NotADirectoryError):
            return
        if size == before:
            return
        with open(open_file(f"{directory}/{STREAM}"), "rb") as file:
            file.seek(before if size > before else 0)
            while (frame := read_frame(file)) is not None:
                self._write_frame(directory, frame)
            self._read[name] = file.tell()
        self._spool(name, directory)

    def forget(self, name: str) -> None:
        """Forget a job that is over."""
        self._read.pop(name, None)
        self._spooled.pop(name, None)

    def _write_frame(self, directory: str, frame: Frame) -> None:
        path = f"{directory}/{frame.file}"
        folder = os.path.dirname(path)
        if folder != directory:
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, 0o700)
        descriptor = open_file(path, os.O_WRONLY | os.O_CREAT)
        try:
            if os.fstat(descriptor).st_size < frame.offset + len(frame.data):
                os.pwrite(descriptor, frame.data, frame.offset)
        finally:
            os.close(descriptor)

    def _spool(self, name: str, directory: str) -> None:
        """Write new complete records into the spool, as the job's script would have done."""
        start = self._spooled.get(name, 0)
        try:
            with opened(f"{directory}/records") as descriptor:
                new = read_at(descriptor, start, LARGE)
        except FileNotFoundError:
            return
        whole = new[: new.rfind(b"\n") + 1]
        for line in whole.splitlines():
            record = parse(line)
            if record is None or record.job != name:
                continue
            target = f"{self._journal.spool}/{name}.{record.run}.{record.stream}.{record.number}"
            with open(f"{target}.{self._suffix}.tmp", "wb") as out:
                out.write(line + b"\n")
            os.rename(f"{target}.{self._suffix}.tmp", target)
        self._spooled[name] = start + len(whole)
