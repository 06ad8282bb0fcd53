"""A container's log as files: which one, from where on, and how its lines get their times.

All of it blocks. Nothing here ever reads more than one chunk at a time.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from typing import NamedTuple, Optional

CHUNK = 64 * 1024  # of a search backwards
_NAME = re.compile(r"(?P<container>[a-z0-9-]+)\.(?P<start>[0-9]{1,9})\.log")


class Window(NamedTuple):
    """Where in a log a window goes on."""

    start: int  # which start of the container
    offset: int
    midline: bool  # whether the line at the offset has been begun before

    def __str__(self) -> str:
        return f"{self.start}.{self.offset}.{int(self.midline)}"


def parse_cursor(text: str) -> Optional[Window]:
    """The window that a cursor stands for; None if it is none of ours."""
    parts = text.split(".")
    if len(parts) != 3 or not all(p.isascii() and p.isdigit() and len(p) < 19 for p in parts):
        return None
    return Window(int(parts[0]), int(parts[1]), parts[2] == "1")


def starts(directory: str, container: str) -> list[int]:
    """The starts of a container that have a log, in order."""
    try:
        names = os.listdir(f"{directory}/logs")
    except FileNotFoundError:
        return []
    found = (_NAME.fullmatch(name) for name in names)
    return sorted(int(one["start"]) for one in found if one and one["container"] == container)


def path_of(directory: str, container: str, start: int) -> str:
    """The file of one start of a container."""
    return f"{directory}/logs/{container}.{start}.log"


def tail_offset(path: str, lines: int) -> int:
    """Where the last so many lines begin: read from the end, block by block."""
    with open(path, "rb") as file:
        end = file.seek(0, os.SEEK_END)
        if lines == 0:
            return end
        position, wanted = end, lines
        if end and _at(file.fileno(), end - 1, 1) == b"\n":
            position -= 1  # the last line's own end begins no other one
        while position > 0:
            size = min(CHUNK, position)
            block = _at(file.fileno(), position - size, size)
            found = block.count(b"\n")
            if found >= wanted:
                cut = len(block)
                for _ in range(wanted):
                    cut = block.rindex(b"\n", 0, cut)
                return position - size + cut + 1
            wanted -= found
            position -= size
    return 0


def since_offset(path: str, since_ms: int) -> int:
    """Where the first line begins that was written at that time or later."""
    size = os.stat(path).st_size
    before = last = 0
    for second, upto in index(path):
        if (second + 1) * 1000 > since_ms:
            return line_start(path, before)
        before, last = upto, second
    # What the index does not know of yet is new.
    return line_start(path, before) if last or since_ms <= time.time() * 1000 else size


def index(path: str) -> Iterator[tuple[int, int]]:
    """Second, and size of the log when it was over; a torn last line is left out."""
    try:
        with open(f"{path}.idx", "rb") as file:
            for line in file:
                second, _, size = line.strip().partition(b" ")
                if line.endswith(b"\n") and second.isdigit() and size.isdigit():
                    yield int(second), int(size)
    except FileNotFoundError:
        return


def line_start(path: str, offset: int) -> int:
    """The first offset from this one on at which a line begins."""
    with open(path, "rb") as file:
        if offset == 0 or _at(file.fileno(), offset - 1, 1) in (b"\n", b""):
            return offset
        while True:
            block = _at(file.fileno(), offset, CHUNK)
            found = block.find(b"\n")
            if found >= 0 or not block:
                return offset + found + 1 if found >= 0 else offset
            offset += len(block)


def _at(descriptor: int, offset: int, size: int) -> bytes:
    return os.pread(descriptor, size, offset)


class Stamper:
    """Puts the time before each line, as ``kubectl logs --timestamps`` shows it."""

    def __init__(self, path: str, window: Window) -> None:
        self._entries = index(path)
        self._position = window.offset
        self._second, self._upto = 0, 0
        self.midline = window.midline
        self._stamp = b""

    def stamped(self, data: bytes) -> bytes:
        """The next bytes of the log, with times."""
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
        while self._upto <= position:
            entry = next(self._entries, None)
            if entry is None:  # written since the last second was over
                self._second, self._upto, moved = int(time.time()), 2**63, True
                break
            self._second, self._upto = entry
            moved = True
        if moved:
            text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(self._second))
            self._stamp = f"{text}.000000000Z ".encode()
        return self._stamp


def _lines(data: bytes) -> list[bytes]:
    """Lines end at newlines only."""
    parts = data.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
