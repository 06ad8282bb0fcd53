"""The life of one pool's jobs: from the journal into the batch system, to their end and removal.

Some loops, each with its own pace, change one table; all of them run in the event loop and leave
what blocks to threads. Whatever a loop is in doubt about stays as it is until the next round: no
trouble with the batch system or the file system changes a job's state.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Iterable, Sequence
from typing import Callable, Optional

from submitter import submission
from submitter.ending import Ending
from submitter.errors import SubmitterError
from submitter.janitor import Janitor
from submitter.journal import Tombstone
from submitter.polling import Polling
from submitter.removal import Removal
from submitter.scanner import Scanner, Sight
from submitter.site import Site
from submitter.submission import Attempt, Submission
from submitter.table import Entry, Found
from templates.job import Job
from templates.results import Record
from templates.states import ACCEPTED, ENDED, IN_QUEUE, QUEUED

logger = logging.getLogger(__name__)

SOON_S = 0.2  # until what has just ended is looked at again
AT_ONCE = 16  # submissions per trip to a thread
SLEPT_S = 20.0  # without a look, records may have come and gone
NEXT = "waits for its turn"

Step = Callable[[], Awaitable[None]]


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
        self._wakes: dict[str, asyncio.Event] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        self._last_look = time.monotonic()
        self._trouble: dict[str, str] = {}

    # --- life ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Learn what is there, then keep it going; raises ``OSError`` if nothing can be read."""
        await asyncio.to_thread(self.site.journal.prepare)
        try:
            await self._look()
        except SubmitterError as error:  # what has ended is cleaned up once that can be done
            self._complain("look", str(error))
        timing = self.site.pool.timing
        loops: Sequence[tuple[str, Step, Callable[[], float]]] = (
            ("look", self._look, lambda: SOON_S if self._ending.waits else timing.spool_s),
            ("submit", self._submit, lambda: timing.poll_s),
            ("poll", self._poll, self._polling.pause),
            ("remove", self._removal.step, lambda: 1.0 if self._table.buried else timing.poll_s),
            ("tidy", self._janitor.step, lambda: self._janitor.pause_s),
            ("clear", self._clear, lambda: timing.spool_s),
        )
        for name, step, pause in loops:
            self._wakes[name] = asyncio.Event()
            work = self._repeat(name, step, pause)
            self._tasks.append(asyncio.create_task(work, name=f"{self.site.pool.name} {name}"))

    async def stop(self) -> None:
        """Stop looking; jobs go on."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _repeat(self, name: str, step: Step, pause: Callable[[], float]) -> None:
        wake = self._wakes[name]
        while not self._stopping:  # wait_for may swallow a cancellation
            wake.clear()
            try:
                await step()
            except (OSError, SubmitterError) as error:
                self._complain(name, str(error))
            except Exception as error:  # whatever it was, the next round may do better
                if self._is_new(name, repr(error)):
                    logger.exception("pool=%s: %s failed", self.site.pool.name, name)
            else:
                self._complain(name, "")
            try:
                await asyncio.wait_for(wake.wait(), pause())
            except asyncio.TimeoutError:
                continue

    def _complain(self, name: str, words: str) -> None:
        """Log trouble when it begins, changes and ends."""
        if self._is_new(name, words):
            logger.warning("pool=%s: %s: %s", self.site.pool.name, name, words or "works again")

    def _is_new(self, name: str, words: str) -> bool:
        known, self._trouble[name] = self._trouble.get(name, ""), words
        return words != known

    def _awaken(self, *names: str) -> None:
        for name in names:
            if name in self._wakes:
                self._wakes[name].set()

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
            self._awaken("submit")

    def bury(self, name: str, stone: Tombstone) -> bool:
        """A job's end was asked for, and that is written down; whether the job is known."""
        entry = self._table.get(name)
        if entry is None:
            return False
        self._table.bury(entry, stone)
        self._waiting.pop(name, None)
        self._awaken("remove", "poll")
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
            self._awaken("submit", "remove")

    async def _take_in(self, sight: Sight) -> None:
        for found in sight.found:
            self._add(found)
        for name, stone in sight.stones.items():
            self.bury(name, stone)
        for name, gone_with in sight.vanished.items():
            await self._vanished(name, gone_with)
        self._hear(sight.records)
        if sight.found:
            self._awaken("submit")

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
                self._awaken("submit")

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
            self._awaken("submit")  # for those that came in meanwhile

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
            self._awaken("look")
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
