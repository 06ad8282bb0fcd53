"""Deletions: TERM, the grace period, KILL, and once the job has ended, its directory.

The tombstone is on disk, so every step can be repeated, by any submitter of the pool.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Optional

from submitter.common.errors import SubmitterError
from submitter.jobs.context import PoolContext
from submitter.jobs.submit import Submission
from submitter.jobs.table import TrackedJob
from templates.job.status import QUEUED

logger = logging.getLogger(__name__)

MARGIN_S = 5.0  # the script keeps the grace period itself, and reports how its containers end


class Removal:
    """The deletions of one pool."""

    def __init__(self, context: PoolContext, submission: Submission) -> None:
        self._context = context
        self._submission = submission

    async def step(self) -> None:
        """Advance every deletion; raise the errors of the batch system and of the file system."""
        being_deleted = list(self._context.table.being_deleted.values())
        done = [entry.name for entry in being_deleted if entry.cleaned]
        if done:
            for name in await asyncio.to_thread(self._remove, done):
                self._context.table.drop(name)
        running = [entry for entry in being_deleted if not entry.has_ended]
        await self._cancel_due([entry for entry in running if entry.native])
        failure: Optional[Exception] = None
        for entry in running:
            try:
                if not entry.native:
                    await self._remove_unsubmitted(entry)
            except (SubmitterError, OSError) as error:  # of one job: the others go on
                failure = error
        if failure is not None:
            raise failure

    def _remove(self, names: list[str]) -> list[str]:
        """Remove the directories of these jobs; return those that are gone."""
        gone = []
        for name in names:
            try:
                self._context.journal.remove(name)
                gone.append(name)
            except OSError as error:
                logger.warning("job=%s: its directory is not removed: %s", name, error.strerror)
        return gone

    async def _remove_unsubmitted(self, entry: TrackedJob) -> None:
        """Remove a job that was not submitted; one that was has to be ended first."""
        native = await asyncio.to_thread(self._remove_or_find, entry.name)
        if native is None:
            self._context.table.drop(entry.name)
        elif native:
            entry.update(entry.view._replace(phase=QUEUED, native=native))
            self._context.table.mark_changed(entry)

    def _remove_or_find(self, name: str) -> Optional[str]:
        """Remove the job, or return its native id: empty while another submitter has the lock.

        None if the job is gone.
        """
        try:
            with self._context.journal.lock(name) as mine:
                if not mine:
                    return ""
                native = self._submission.find_native_id(name)
                if native is None:
                    self._context.journal.remove(name)
                return native
        except (FileNotFoundError, NotADirectoryError):
            self._context.journal.withdraw(name)
            return None

    async def _cancel_due(self, entries: list[TrackedJob]) -> None:
        now = time.monotonic()
        new = [entry for entry in entries if entry.deadline is None]
        late = [e for e in entries if e.deadline is not None and now > e.deadline and not e.killed]
        await self._cancel_jobs(new, kill=False)
        for entry in new:
            entry.deadline = now + _grace_s(entry) + MARGIN_S
        await self._cancel_jobs(late, kill=True)
        for entry in late:
            entry.killed = True

    async def _cancel_jobs(self, entries: list[TrackedJob], kill: bool) -> None:
        if not entries:
            return
        context = self._context
        refs = [entry.ref(context.journal.of(entry.name)) for entry in entries]
        await asyncio.to_thread(context.backend.cancel, refs, kill)
        for entry in entries:
            how = "killed" if kill else "told to end"
            logger.info("pool=%s job=%s: %s", context.pool.name, entry.name, how)


def _grace_s(entry: TrackedJob) -> int:
    if entry.tombstone is not None and entry.tombstone.grace_s is not None:
        return entry.tombstone.grace_s
    return entry.job.grace_period_s if entry.job is not None else 0
