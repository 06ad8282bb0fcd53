"""The life of one pool's jobs: from the journal into the batch system, to their end and removal.

Some loops, each with its own pace, change one table; all of them run in the event loop and leave
what blocks to threads. Whatever a loop is in doubt about stays as it is until the next round: no
trouble with the batch system or the file system changes a job's state.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Optional

from submitter.common.errors import SubmitterError
from submitter.common.periodic_tasks import PeriodicTasks
from submitter.jobs import submit as submission
from submitter.jobs.cleanup import Janitor
from submitter.jobs.context import Site
from submitter.jobs.delete import Removal
from submitter.jobs.finish import Ending
from submitter.jobs.poll import Polling
from submitter.jobs.scanner import Scanner, Sight
from submitter.jobs.submit import Attempt, Submission
from submitter.jobs.table import Entry, Found
from submitter.store.journal import Tombstone
from templates.job.model import Job
from templates.job.records import Record
from templates.job.status import ACCEPTED, ENDED, IN_QUEUE, QUEUED

logger = logging.getLogger(__name__)

SOON_S = 0.2  # until what has just ended is looked at again
AT_ONCE = 16  # submissions per trip to a thread
SLEPT_S = 20.0  # without a look, records may have come and gone
NEXT = "waits for its turn"


class Keeper:
    """Keeps one pool's jobs going, from ``start`` to ``stop``."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self._table = site.table
        self._scanner = Scanner(site.journal)
        self._submission = Submission(site.journal, site.backend)
        self._polling = Polling(site, self._submission.take_back)
        self._ending = Ending(site, self._submission.learned)
        self._removal = Removal(site, self._submission)
        self._janitor = Janitor(site)
        self._waiting: dict[str, Entry] = {}  # not submitted yet, in order
        self._full = False  # the first of them was not taken when it was last offered
        self._loops = PeriodicTasks(site.pool.name)
        self._last_look = time.monotonic()

    # --- life ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Learn what is there, then keep it going; raises ``OSError`` if nothing can be read."""
        await asyncio.to_thread(self.site.journal.prepare)
        try:
            await self._look()
        except SubmitterError as error:  # what has ended is cleaned up once that can be done
            self._loops.error("look").set(str(error))
        timing = self.site.pool.timing
        start = self._loops.start
        start("look", self._look, lambda: SOON_S if self._ending.waits else timing.spool_s)
        start("submit", self._submit, lambda: timing.poll_s)
        start("poll", self._poll, self._polling.pause)
        start("remove", self._removal.step, lambda: 1.0 if self._table.buried else timing.poll_s)
        start("tidy", self._janitor.step, lambda: self._janitor.pause_s)
        start("clear", self._clear, lambda: timing.spool_s)

    async def stop(self) -> None:
        """Stop looking; jobs go on."""
        await self._loops.stop()

    async def _clear(self) -> None:
        """Secrets are nowhere but in a job's directory, once it has one."""
        journal = self.site.journal
        if journal.accepted.has_settled:
            await asyncio.to_thread(journal.tidy)

    # --- what comes in ------------------------------------------------------------------------

    def take(self, job: Job) -> None:
        """A job that has just been journaled here."""
        now_ms = int(time.time() * 1000)
        self._add(Found(job.name, job._replace(script="", files=()), now_ms))
        if not self._full:  # else it stands behind others that wait
            self._loops.wake("submit")

    def bury(self, name: str, stone: Tombstone) -> bool:
        """A job's end was asked for, and that is written down; whether the job is known."""
        entry = self._table.get(name)
        if entry is None:
            return False
        self._table.bury(entry, stone)
        self._waiting.pop(name, None)
        self._loops.wake("remove", "poll")
        return True

    def _add(self, found: Found) -> None:
        entry = self._table.add(found)
        if entry is None or entry.final:
            return
        if entry.native:
            entry.look(entry.outlook._replace(phase=QUEUED))
        elif entry.stone is None:
            self._waiting[entry.name] = entry

    # --- looking at the directory -------------------------------------------------------------

    async def _look(self) -> None:
        now = time.monotonic()
        slept, self._last_look = now - self._last_look > SLEPT_S, now
        known, placed = self._table.names(), self._table.handed_over()
        await self._take_in(await asyncio.to_thread(self._scanner.look, known, placed))
        if slept:
            live = [name for name, entry in self._table.live.items() if not entry.final]
            self._hear(await asyncio.to_thread(self._scanner.reread, live))
        if await self._ending.step():
            self._loops.wake("submit", "remove")

    async def _take_in(self, sight: Sight) -> None:
        for found in sight.found:
            self._add(found)
        for name, stone in sight.stones.items():
            self.bury(name, stone)
        for name, gone_with in sight.vanished.items():
            await self._vanished(name, gone_with)
        self._hear(sight.records)
        if sight.found:
            self._loops.wake("submit")

    async def _vanished(self, name: str, stone: Optional[Tombstone]) -> None:
        """Its directory is gone: deleted by another submitter, or removed by hand."""
        entry = self._table.get(name)
        if entry is None or (stone is not None and stone.lost):
            return
        self._waiting.pop(name, None)
        if stone is not None or entry.final:
            self._table.drop(name)
        else:
            await self._ending.vanished(entry)

    def _hear(self, records: Iterable[Record]) -> None:
        by_job: dict[str, list[Record]] = {}
        for record in records:
            by_job.setdefault(record.job, []).append(record)
        for name, said in by_job.items():
            entry = self._table.get(name)
            if entry is not None and entry.hear(said):
                self._table.changed(entry)

    async def _poll(self) -> None:
        await self._polling.step()
        lost, self._polling.taken_back = self._polling.taken_back, []
        for entry in lost:
            if self._table.get(entry.name) is entry:
                self._waiting[entry.name] = entry
                self._loops.wake("submit")

    # --- submitting ---------------------------------------------------------------------------

    async def _submit(self) -> None:
        """Hand over what waits, in order, until the batch system takes no more."""
        waiting = list(self._waiting.values())
        for start in range(0, len(waiting), AT_ONCE):
            batch = waiting[start : start + AT_ONCE]
            jobs = [e.job for e in batch if e.job is not None and e.name in self._waiting]
            attempts = await asyncio.to_thread(self._submission.attempts, jobs)
            for attempt in attempts:
                self._apply(attempt)
            if attempts and attempts[-1].outcome in (submission.WAITS, submission.UNCLEAR):
                self._full = True
                self._queue(attempts[-1])
                return
        if self._full:
            self._full = False
            self._loops.wake("submit")  # for those that came in meanwhile

    def _apply(self, attempt: Attempt) -> None:
        entry = self._waiting.get(attempt.name)
        if entry is None or attempt.outcome in (submission.BUSY, submission.WAITS):
            return
        logger.info(
            "pool=%s job=%s: %s %s",
            self.site.pool.name,
            attempt.name,
            attempt.outcome,
            attempt.native or attempt.words,
        )
        if attempt.outcome in (submission.UNCLEAR, submission.DOUBTFUL):
            return
        del self._waiting[attempt.name]
        outlook = entry.outlook._replace(reason="", message="")
        if attempt.outcome == submission.SUBMITTED:
            entry.look(outlook._replace(phase=QUEUED, native=attempt.native))
        elif attempt.outcome == submission.REFUSED:
            words = f"the batch system refused the job: {attempt.words}"
            now_ms = int(time.time() * 1000)
            entry.look(outlook._replace(phase=ENDED, message=words, exit_code=1, at_ms=now_ms))
            self._loops.wake("look")
        self._table.changed(entry)

    def _queue(self, last: Attempt) -> None:
        """The first one waits for what the batch system says, the others for the first one."""
        first = self._waiting.get(last.name)
        if first is not None:
            phase = QUEUED if last.outcome == submission.WAITS else ACCEPTED
            self._say(first, phase, last.words)
        if last.outcome == submission.WAITS:
            for entry in self._waiting.values():
                if entry is not first and entry.outlook.message != NEXT:
                    self._say(entry, QUEUED, NEXT)

    def _say(self, entry: Entry, phase: str, words: str) -> None:
        if entry.look(entry.outlook._replace(phase=phase, reason=IN_QUEUE, message=words)):
            self._table.changed(entry)
