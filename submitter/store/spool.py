"""The spool directory of a pool: small records that running jobs write into it.

Submitters may share the directory, so a file is kept for a while after it was first read here; a
submitter that misses it reads the job's own list of records instead.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection

from submitter.common.guarded_files import OddEntry, read, remove
from templates.job.records import Record, parse_lines, parse_name

logger = logging.getLogger(__name__)

KEEP_S = 60.0


class Spool:
    """The records in one pool's spool directory; every method blocks."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._seen: dict[str, float] = {}

    def read_new(self) -> list[Record]:
        """Return the new records; raise ``OSError`` if the directory cannot be read."""
        now = time.monotonic()
        names = [name for name in os.listdir(self._directory) if parse_name(name) is not None]
        records: list[Record] = []
        owners = {os.geteuid(), os.stat(self._directory).st_uid}
        new = [name for name in names if name not in self._seen]
        for name in new:
            records += self._read(name, owners)
        self._drop(set(names), now)
        self._seen.update((name, now) for name in new)
        return records

    def _read(self, name: str, owners: Collection[int]) -> list[Record]:
        """Return the records of the job that a file is named after."""
        try:
            content = read(f"{self._directory}/{name}", owners=owners) or b""
        except OddEntry as error:
            logger.warning("%s/%s: is no record: %s", self._directory, name, error.strerror)
            return []
        job = name.partition(".")[0]
        return [record for record in parse_lines(content) if record.job == job]

    def _drop(self, names: set[str], now: float) -> None:
        """Remove files that every submitter must have read by now; forget those that are gone."""
        for name, since in list(self._seen.items()):
            if name not in names:
                del self._seen[name]
            elif now - since > KEEP_S:
                remove(f"{self._directory}/{name}")
                del self._seen[name]
