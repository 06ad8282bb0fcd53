"""The files of a container's log: which one, from which offset, and the times of its lines.

Everything blocks. Nothing here reads more than one chunk at a time.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from typing import NamedTuple, Optional

from submitter.common.guarded_files import OddEntry, open_file, opened

CHUNK = 64 * 1024  # of a search backwards
MOST_SEARCHED = 256 * 1024 * 1024  # for the beginning of a line
LONGEST_ENTRY = 64  # of an index
_ENTRY = re.compile(rb"([0-9]{1,11}) ([0-9]{1,18})\n")
_NAME = re.compile(r"(?P<container>[a-z0-9-]+)\.(?P<start>[0-9]{1,9})\.log")


class LogWindow(NamedTuple):
    """Where a window of a log begins; as text, the cursor."""

    start: int  # which start of the container
    offset: int
    midline: bool  # the offset is inside of a line

    def __str__(self) -> str:
        return f"{self.start}.{self.offset}.{int(self.midline)}"


def parse_cursor(text: str) -> Optional[LogWindow]:
    """Return the window of a cursor; None if it is malformed."""
    parts = text.split(".")
    if len(parts) != 3 or not all(p.isascii() and p.isdigit() and len(p) < 19 for p in parts):
        return None
    return LogWindow(int(parts[0]), int(parts[1]), parts[2] == "1")


def list_starts(directory: str, container: str) -> list[int]:
    """Return the numbers of a container's starts that have a log, in order."""
    try:
        names = os.listdir(f"{directory}/logs")
    except FileNotFoundError:
        return []
    matches = (_NAME.fullmatch(name) for name in names)
    return sorted(
        int(match["start"]) for match in matches if match and match["container"] == container
    )


def path_of(directory: str, container: str, start: int) -> str:
    """Return the log file of one start of a container."""
    return f"{directory}/logs/{container}.{start}.log"


def tail_offset(path: str, lines: int) -> int:
    """Return where the last lines begin: read from the end, block by block."""
    with opened(path) as descriptor:
        end = os.fstat(descriptor).st_size
        if lines == 0:
            return end
        position, wanted = end, lines
        if end and os.pread(descriptor, 1, end - 1) == b"\n":
            position -= 1  # the end of the last line begins no further one
        least = max(end - MOST_SEARCHED, 0)
        while position > least:
            size = min(CHUNK, position)
            block = os.pread(descriptor, size, position - size)
            found = block.count(b"\n")
            if found >= wanted:
                cut = len(block)
                for _ in range(wanted):
                    cut = block.rindex(b"\n", 0, cut)
                return position - size + cut + 1
            wanted -= found
            position -= size
    return least


def since_offset(path: str, since_ms: int) -> int:
    """Return where the first line begins that was written at this time or later."""
    size = os.stat(path).st_size
    before = last = 0
    for second, end in read_index(path):
        if (second + 1) * 1000 > since_ms:
            return line_start(path, before)
        before, last = end, second
    # Lines that are not in the index yet are new.
    return line_start(path, before) if last or since_ms <= time.time() * 1000 else size


def read_index(path: str) -> Iterator[tuple[int, int]]:
    """Yield seconds, and the size of the log at the end of each; skip a torn last line."""
    try:
        descriptor = open_file(f"{path}.idx")
    except (FileNotFoundError, OddEntry):
        return
    with open(descriptor, "rb") as file:
        while (line := file.readline(LONGEST_ENTRY)).endswith(b"\n"):
            found = _ENTRY.fullmatch(line)
            if found is not None:
                yield int(found[1]), int(found[2])


def line_start(path: str, offset: int) -> int:
    """Return the first offset, from this one on, at which a line begins."""
    with opened(path) as descriptor:
        if offset == 0 or os.pread(descriptor, 1, offset - 1) in (b"\n", b""):
            return offset
        end = offset + MOST_SEARCHED
        while offset < end:
            block = os.pread(descriptor, CHUNK, offset)
            found = block.find(b"\n")
            if found >= 0 or not block:
                return offset + found + 1 if found >= 0 else offset
            offset += len(block)
        return offset


class Stamper:
    """The times before the lines, as ``kubectl logs --timestamps`` shows them."""

    def __init__(self, path: str, window: LogWindow) -> None:
        self._entries = read_index(path)
        self._position = window.offset
        self._second, self._end = 0, 0
        self.midline = window.midline
        self._stamp = b""

    def stamped(self, data: bytes) -> bytes:
        """Return the next bytes of the log with times."""
        out = []
        for line in _lines(data):
            if not self.midline:
                out.append(self._time_at(self._position))
            out.append(line)
            self._position += len(line)
            self.midline = not line.endswith(b"\n")
        return b"".join(out)

    def _time_at(self, position: int) -> bytes:
        moved = not self._stamp
        while self._end <= position:
            entry = next(self._entries, None)
            if entry is None:  # written after the last second of the index
                self._second, self._end, moved = int(time.time()), 2**63, True
                break
            self._second, self._end = entry
            moved = True
        if moved:
            text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(self._second))
            self._stamp = f"{text}.000000000Z ".encode()
        return self._stamp


def _lines(data: bytes) -> list[bytes]:
    """Split at newlines only."""
    parts = data.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
