"""Logs of containers in the site's cluster, brought here when somebody asks for them.

A log becomes a file of the job's directory, where those of other batch systems are, and grows by
what is new since its last line. ``<log>.seen`` says how far it has come, so that any submitter goes
on where another one has stopped; whoever holds its lock writes.
"""

from __future__ import annotations

import os
import re
import time
from calendar import timegm
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import BinaryIO, NamedTuple, Optional

from submitter.backends.kubernetes.client import Api, ApiRefused
from submitter.common.filelock import locked
from submitter.store.journal import read
from submitter.store.log_files import path_of

AGAIN_AFTER_S = 1.0  # between two questions about the same log


# What each line begins with. One without it is not the container's: its node says that it has none.
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)((?:\.\d{1,9})?)(Z|[+-]\d\d:\d\d) ")


class Seen(NamedTuple):
    """How far a log has come."""

    size: int = 0
    last: str = ""  # the time of its last line
    same: int = 0  # so many of its last lines have that time


class PodLogs:
    """The logs of one pool's pods, as one process has asked for them so far."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._asked: dict[str, float] = {}

    def bring(self, pod: str, directory: str, container: str, start: int, *, now: bool) -> bool:
        """Have the files say what the log says by now; ``now``: however lately it was asked.

        Whether they do: another submitter may be at it, and there may be no log.
        """
        path = path_of(directory, container, start)
        if not now and time.monotonic() - self._asked.get(path, 0.0) < AGAIN_AFTER_S:
            return True
        os.makedirs(f"{directory}/logs", 0o700, exist_ok=True)
        with locked(f"{path}.seen-lock", wait=False) as mine:
            if mine:
                before = path_of(directory, container, start - 1)
                if start > 0 and not os.path.exists(before):
                    self._append(pod, container, before, {"previous": "true"})
                mine = self._append(pod, container, path, {})
        if mine:
            self._asked[path] = time.monotonic()
        return mine

    def forget(self, directory: str) -> None:
        """Of a job that is over."""
        for path in [path for path in self._asked if path.startswith(f"{directory}/")]:
            del self._asked[path]

    def _append(self, pod: str, container: str, path: str, query: dict[str, str]) -> bool:
        seen = _read_seen(path)
        asked = {"container": container, "timestamps": "true", **query}
        if seen.last:
            asked["sinceTime"] = seen.last
        try:
            written = _write(path, seen, self._api.log(pod, asked))
        except ApiRefused:
            written = None
        if written is None:  # it has not begun, or is gone, or its node does not know it yet
            return False
        with open(f"{path}.seen.new", "w", encoding="ascii") as file:
            file.write(f"{written.size} {written.last} {written.same}\n")
        os.rename(f"{path}.seen.new", f"{path}.seen")
        return True


def _read_seen(path: str) -> Seen:
    words = (read(f"{path}.seen") or b"").decode(errors="replace").split()
    if len(words) != 3 or not words[0].isdigit() or not words[2].isdigit():
        return Seen()
    return Seen(int(words[0]), words[1], int(words[2]))


def _write(path: str, seen: Seen, lines: Iterable[bytes]) -> Optional[Seen]:
    """Append what is new; in the index, which second each part is of. None: there is no log."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
    skip, second = seen.same, seen.last[:19]
    lines = iter(lines)
    first = next(lines, None)  # before that nothing is certain: it may be refused
    if first is not None and _STAMP.match(first) is None:
        return None
    with (
        os.fdopen(os.open(path, flags, 0o600), "wb") as file,
        os.fdopen(os.open(f"{path}.idx", flags | os.O_APPEND, 0o600), "wb") as index,
    ):
        file.truncate(seen.size)
        file.seek(seen.size)
        while first is not None:
            stamp, text = _STAMP.match(first), first
            first = next(lines, None)
            if stamp is None:
                continue
            at, text = _in_utc(stamp), text[stamp.end() :]
            if _key(at) < _key(seen.last) or (at == seen.last and skip > 0):
                skip -= at == seen.last
                continue
            if second and at[:19] != second:
                _note(index, second, seen.size)
            second = at[:19]
            file.write(text)
            same = seen.same + 1 if at == seen.last else 1
            seen = Seen(seen.size + len(text), at, same)
        if second:
            _note(index, second, seen.size)
    return seen


def _in_utc(stamp: re.Match[bytes]) -> str:
    """Nodes write the time that their clock shows."""
    second, fraction, zone = (part.decode() for part in stamp.groups())
    if zone != "Z":
        at = datetime.fromisoformat(f"{second}{zone}").astimezone(timezone.utc)
        second = at.strftime("%Y-%m-%dT%H:%M:%S")
    return f"{second}{fraction}Z"


def _key(stamp: str) -> tuple[str, str]:
    """Times in their order: their fractions of a second are as long as they need to be."""
    second, _, fraction = stamp.rstrip("Z").partition(".")
    return second, fraction.ljust(9, "0")


def _note(index: BinaryIO, second: str, size: int) -> None:
    at = timegm(time.strptime(second, "%Y-%m-%dT%H:%M:%S"))
    index.write(f"{at} {size}\n".encode())
