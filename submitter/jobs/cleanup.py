"""Tidying up a pool's directory: what crashes and oblivion have left.

Runs in a thread, now and then.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import time
from collections.abc import Iterator

from submitter.jobs.context import Site
from templates.job.records import parse_name
from templates.protocol.messages import Delete

logger = logging.getLogger(__name__)

RUBBISH_AFTER_S = 3600.0


class Janitor:
    """Tidies up after one pool."""

    pause_s = 600.0

    def __init__(self, site: Site) -> None:
        self._site = site

    async def step(self) -> None:
        """One round; the first thing after a start, too."""
        table, keep_s = self._site.table, self._site.pool.timing.keep_orphans_s
        old = time.time() - keep_s
        orphans = [
            entry.name
            for entry in table.entries()
            if entry.final and entry.stone is None and entry.ended_s < old
        ]
        await asyncio.to_thread(self._tidy, orphans)
        await asyncio.to_thread(self._site.backend.tidy)

    def _tidy(self, orphans: list[str]) -> None:
        journal = self._site.journal
        journal.tidy()
        now = time.time()
        for path, age in _ages(journal.incoming, now):
            if age > RUBBISH_AFTER_S:
                _remove(path)
        for path, age in _ages(journal.spool, now):
            if age > RUBBISH_AFTER_S and parse_name(os.path.basename(path)) is None:
                _remove(path)
        for path, age in _ages(journal.deleted, now):
            kept = journal.has(os.path.basename(path))
            if age > self._site.pool.timing.keep_deleted_s and not kept:
                _remove(path)
        if orphans:
            # From here on they are like any other deleted job.
            journal.bury([Delete(name, None) for name in orphans])
            logger.info("pool=%s: removes %s orphans", self._site.pool.name, len(orphans))


def _ages(folder: str, now: float) -> Iterator[tuple[str, float]]:
    """Each entry of a folder, and how many seconds ago it was changed."""
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                yield entry.path, now - entry.stat(follow_symlinks=False).st_mtime
            except FileNotFoundError:
                continue


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
        return
    try:
        os.unlink(path)
    except OSError:
        return
