"""Deletions: TERM, the grace period, KILL, and when the job has really ended, its directory.

The wish is on disk (a tombstone), so every step can be taken again, by any submitter of the pool.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Optional

from submitter.common.errors import SubmitterError
from submitter.jobs.context import Site
from submitter.jobs.submit import Submission
from submitter.jobs.table import Entry
from templates.job.status import QUEUED

logger = logging.getLogger(__name__)

SLACK_S = 5.0  # the script keeps the grace period itself, and reports the ends


class Removal:
    """The deletions of one pool."""

    def __init__(self, site: Site, submission: Submission) -> None:
        self._site = site
        self._submission = submission

    async def step(self) -> None:
        """One round; raises what the batch system or the file system raises."""
        buried = list(self._site.table.buried.values())
        done = [entry.name for entry in buried if entry.cleaned]
        if done:
            await asyncio.to_thread(self._remove, done)
            for name in done:
                self._site.table.drop(name)
        going = [entry for entry in buried if not entry.has_ended]
        await self._cancel([entry for entry in going if entry.native])
        trouble: Optional[SubmitterError] = None
        for entry in going:
            try:
                if not entry.native:
                    await self._withdraw(entry)
            except SubmitterError as error:  # of one job: the others do not wait for it
                trouble = error
        if trouble is not None:
            raise trouble

    def _remove(self, names: list[str]) -> None:
        for name in names:
            self._site.journal.remove(name)

    async def _withdraw(self, entry: Entry) -> None:
        """A job that was not submitted is simply removed; one that was has to be ended first."""
        native = await asyncio.to_thread(self._withdrawn, entry.name)
        if native is None:
            self._site.table.drop(entry.name)
        elif native:
            entry.look(entry.outlook._replace(phase=QUEUED, native=native))
            self._site.table.changed(entry)

    def _withdrawn(self, name: str) -> Optional[str]:
        """None when it is gone, empty when another submitter is at it."""
        try:
            with self._site.journal.lock(name) as mine:
                if not mine:
                    return ""
                native = self._submission.native(name)
                if native is None:
                    self._site.journal.remove(name)
                return native
        except (FileNotFoundError, NotADirectoryError):
            self._site.journal.withdraw(name)
            return None

    async def _cancel(self, entries: list[Entry]) -> None:
        now = time.monotonic()
        fresh = [entry for entry in entries if entry.deadline is None]
        late = [e for e in entries if e.deadline is not None and now > e.deadline and not e.killed]
        await self._tell(fresh, kill=False)
        for entry in fresh:
            entry.deadline = now + _grace_s(entry) + SLACK_S
        await self._tell(late, kill=True)
        for entry in late:
            entry.killed = True

    async def _tell(self, entries: list[Entry], kill: bool) -> None:
        if not entries:
            return
        site = self._site
        tickets = [entry.ticket(site.journal.of(entry.name)) for entry in entries]
        await asyncio.to_thread(site.backend.cancel, tickets, kill)
        for entry in entries:
            how = "killed" if kill else "told to end"
            logger.info("pool=%s job=%s: %s", site.pool.name, entry.name, how)


def _grace_s(entry: Entry) -> int:
    if entry.stone is not None and entry.stone.grace_s is not None:
        return entry.stone.grace_s
    return entry.job.grace_period_s if entry.job is not None else 0
