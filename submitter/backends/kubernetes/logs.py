"""Logs of containers in the site's cluster, fetched when they are requested.

A log becomes a file of the job's directory, where those of other batch systems are, and grows by
the lines after its last one. ``<log>.seen`` has the position, so that any submitter continues where
another one has stopped; the one that holds its lock writes.
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
from submitter.common.guarded_files import read
from submitter.store.log_files import path_of

FETCH_INTERVAL_S = 1.0  # between two requests for the same log
# Each line begins with a timestamp. One without is not the container's, but an error of its node.
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)((?:\.\d{1,9})?)(Z|[+-]\d\d:\d\d) ")


class LogPosition(NamedTuple):
    """The end of what was fetched of a log."""

    size: int = 0
    last: str = ""  # the timestamp of its last line
    same: int = 0  # how many of its last lines have that timestamp


class PodLogs:
    """The logs of one pool's pods, and when this process last fetched each."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._fetched_at: dict[str, float] = {}

    def fetch(self, pod: str, directory: str, container: str, start: int, *, now: bool) -> bool:
        """Append new lines to the files of a log; ``now``: even if it was fetched a moment ago.

        Return whether they are complete: another submitter may hold the lock, or there is no log.
        """
        path = path_of(directory, container, start)
        if not now and time.monotonic() - self._fetched_at.get(path, 0.0) < FETCH_INTERVAL_S:
            return True
        os.makedirs(f"{directory}/logs", 0o700, exist_ok=True)
        with locked(f"{path}.seen-lock", wait=False) as mine:
            if mine:
                before = path_of(directory, container, start - 1)
                if start > 0 and not os.path.exists(before):
                    self._append(pod, container, before, {"previous": "true"})
                mine = self._append(pod, container, path, {})
        if mine:
            self._fetched_at[path] = time.monotonic()
        return mine

    def forget(self, directory: str) -> None:
        """Forget a job that is over."""
        for path in [path for path in self._fetched_at if path.startswith(f"{directory}/")]:
            del self._fetched_at[path]

    def _append(self, pod: str, container: str, path: str, query: dict[str, str]) -> bool:
        position = _read_position(path)
        parameters = {"container": container, "timestamps": "true", **query}
        if position.last:
            parameters["sinceTime"] = position.last
        try:
            written = _append_new(path, position, self._api.log(pod, parameters))
        except ApiRefused:
            written = None
        if written is None:  # it has not begun, or is gone, or its node does not know it yet
            return False
        with open(f"{path}.seen.new", "w", encoding="ascii") as file:
            file.write(f"{written.size} {written.last} {written.same}\n")
        os.rename(f"{path}.seen.new", f"{path}.seen")
        return True


def _read_position(path: str) -> LogPosition:
    words = (read(f"{path}.seen") or b"").decode(errors="replace").split()
    if len(words) != 3 or not words[0].isdigit() or not words[2].isdigit():
        return LogPosition()
    return LogPosition(int(words[0]), words[1], int(words[2]))


def _append_new(path: str, position: LogPosition, lines: Iterable[bytes]) -> Optional[LogPosition]:
    """Append new lines, and to the index the second of each part; None if there is no log."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
    skip, second = position.same, position.last[:19]
    lines = iter(lines)
    first = next(lines, None)  # only now it is certain that the request was not refused
    if first is not None and _STAMP.match(first) is None:
        return None
    with (
        os.fdopen(os.open(path, flags, 0o600), "wb") as file,
        os.fdopen(os.open(f"{path}.idx", flags | os.O_APPEND, 0o600), "wb") as index,
    ):
        file.truncate(position.size)
        file.seek(position.size)
        while first is not None:
            stamp, text = _STAMP.match(first), first
            first = next(lines, None)
            if stamp is None:
                continue
            at, text = _to_utc(stamp), text[stamp.end() :]
            if _sort_key(at) < _sort_key(position.last) or (at == position.last and skip > 0):
                skip -= at == position.last
                continue
            if second and at[:19] != second:
                _write_index_entry(index, second, position.size)
            second = at[:19]
            file.write(text)
            same = position.same + 1 if at == position.last else 1
            position = LogPosition(position.size + len(text), at, same)
        if second:
            _write_index_entry(index, second, position.size)
    return position


def _to_utc(stamp: re.Match[bytes]) -> str:
    """Return a timestamp in UTC: nodes write their local time."""
    second, fraction, zone = (part.decode() for part in stamp.groups())
    if zone != "Z":
        at = datetime.fromisoformat(f"{second}{zone}").astimezone(timezone.utc)
        second = at.strftime("%Y-%m-%dT%H:%M:%S")
    return f"{second}{fraction}Z"


def _sort_key(stamp: str) -> tuple[str, str]:
    """Return a key to sort timestamps by: their fractions have different lengths."""
    second, _, fraction = stamp.rstrip("Z").partition(".")
    return second, fraction.ljust(9, "0")


def _write_index_entry(index: BinaryIO, second: str, size: int) -> None:
    at = timegm(time.strptime(second, "%Y-%m-%dT%H:%M:%S"))
    index.write(f"{at} {size}\n".encode())
