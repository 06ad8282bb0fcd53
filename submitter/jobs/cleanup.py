"""Cleanup of a pool's directory: leftovers of crashes, old tombstones, and orphaned jobs.

Runs periodically, in a thread.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterator

from submitter.common.guarded_files import remove
from submitter.jobs.context import PoolContext
from templates.job.records import parse_name
from templates.protocol.messages import Delete

logger = logging.getLogger(__name__)

LEFTOVER_AFTER_S = 3600.0


class Janitor:
    """Periodic cleanup of one pool."""

    pause_s = 600.0

    def __init__(self, context: PoolContext) -> None:
        self._context = context

    async def step(self) -> None:
        """Clean up once; also the first thing after a start."""
        table, keep_s = self._context.table, self._context.pool.timing.keep_orphans_s
        old = time.time() - keep_s
        orphans = [
            entry.name
            for entry in table.entries()
            if entry.final and entry.tombstone is None and entry.ended_s < old
        ]
        await asyncio.to_thread(self._tidy, orphans)
        await asyncio.to_thread(self._context.backend.tidy)

    def _tidy(self, orphans: list[str]) -> None:
        journal = self._context.journal
        journal.tidy()
        now = time.time()
        for path, age in _entry_ages(journal.incoming, now):
            if age > LEFTOVER_AFTER_S:
                remove(path)
        for path, age in _entry_ages(journal.spool, now):
            if age > LEFTOVER_AFTER_S and parse_name(os.path.basename(path)) is None:
                remove(path)
        for path, age in _entry_ages(journal.deleted, now):
            kept = journal.has(os.path.basename(path))
            if age > self._context.pool.timing.keep_deleted_s and not kept:
                remove(path)
        if orphans:
            # From here on they are handled like any other deleted job.
            journal.bury([Delete(name, None) for name in orphans])
            logger.info("pool=%s: removes %s orphans", self._context.pool.name, len(orphans))


def _entry_ages(folder: str, now: float) -> Iterator[tuple[str, float]]:
    """Yield the path of each entry of a folder, and the seconds since it was changed."""
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                yield entry.path, now - entry.stat(follow_symlinks=False).st_mtime
            except FileNotFoundError:
                continue
