"""The lifecycle of one pool's jobs: journaled, submitted, ended, removed.

Several periodic steps change one table; all of them run in the event loop and leave what blocks to
threads. No error of the batch system or the file system changes a job's state: the next round tries
again.
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
from submitter.jobs.context import PoolContext
from submitter.jobs.delete import Removal
from submitter.jobs.finish import Ending
from submitter.jobs.poll import Polling
from submitter.jobs.scanner import Scanner, ScanResult
from submitter.jobs.submit import Attempt, Submission
from submitter.jobs.table import StoredJob, TrackedJob
from submitter.store.journal import Tombstone
from templates.job.model import Job
from templates.job.records import Record
from templates.job.status import ACCEPTED, ENDED, IN_QUEUE, QUEUED

logger = logging.getLogger(__name__)

NEXT_SCAN_S = 0.2  # while the end of a job is not handled completely
BATCH_SIZE = 16  # of submissions, in one call of a thread
MISSED_SCANS_S = 20.0  # without a scan: records may have come and gone in the spool meanwhile
NOT_FIRST = "waits for its turn"


class JobLifecycle:
    """The steps that move one pool's jobs along, from ``start`` to ``stop``."""

    def __init__(self, context: PoolContext) -> None:
        self.context = context
        self._table = context.table
        self._scanner = Scanner(context.journal)
        self._submission = Submission(context.journal, context.backend)
        self._polling = Polling(context, self._submission.prepare_resubmit)
        self._ending = Ending(context, self._submission.resolve_native_id)
        self._removal = Removal(context, self._submission)
        self._janitor = Janitor(context)
        self._waiting: dict[str, TrackedJob] = {}  # not submitted yet, in order
        self._is_full = False  # the batch system did not take the first of them
        self._loops = PeriodicTasks(context.pool.name)
        self._last_scan = time.monotonic()

    # --- life ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load the jobs and start the steps; raise ``OSError`` if the directory cannot be read."""
        await asyncio.to_thread(self.context.journal.prepare)
        try:
            await self._scan()
        except SubmitterError as error:  # the next round tries again
            self._loops.error("look").set(str(error))
        timing = self.context.pool.timing
        start = self._loops.start
        start(
            "look", self._scan, lambda: NEXT_SCAN_S if self._ending.has_pending else timing.spool_s
        )
        start("submit", self._submit, lambda: timing.poll_s)
        start("poll", self._poll, self._polling.pause)
        start(
            "remove",
            self._removal.step,
            lambda: 1.0 if self._table.being_deleted else timing.poll_s,
        )
        start("tidy", self._janitor.step, lambda: self._janitor.pause_s)
        start("clear", self._clear, lambda: timing.spool_s)

    async def stop(self) -> None:
        """Stop the steps; jobs go on."""
        await self._loops.stop()

    async def _clear(self) -> None:
        """Erase accepted jobs that have a directory by now, as secrets may be in them."""
        journal = self.context.journal
        if journal.accepted.has_settled:
            await asyncio.to_thread(journal.tidy)

    # --- requests -----------------------------------------------------------------------------

    def accept(self, job: Job) -> None:
        """Add a job that has just been journaled here."""
        now_ms = int(time.time() * 1000)
        self._add(StoredJob(job.name, job._replace(script="", files=()), now_ms))
        if not self._is_full:  # else it waits behind others
            self._loops.wake("submit")

    def mark_deleted(self, name: str, tombstone: Tombstone) -> bool:
        """Note that a job's tombstone was written; return whether the job is known."""
        entry = self._table.get(name)
        if entry is None:
            return False
        self._table.mark_deleted(entry, tombstone)
        self._waiting.pop(name, None)
        self._loops.wake("remove", "poll")
        return True

    def _add(self, found: StoredJob) -> None:
        entry = self._table.add(found)
        if entry is None or entry.final:
            return
        if entry.native:
            entry.update(entry.view._replace(phase=QUEUED))
        elif entry.tombstone is None:
            self._waiting[entry.name] = entry

    # --- scans of the directory ---------------------------------------------------------------

    async def _scan(self) -> None:
        now = time.monotonic()
        missed_scans, self._last_scan = now - self._last_scan > MISSED_SCANS_S, now
        known, submitted = self._table.names(), self._table.submitted_names()
        await self._apply_scan(await asyncio.to_thread(self._scanner.scan, known, submitted))
        if missed_scans:
            live = [name for name, entry in self._table.live.items() if not entry.final]
            self.apply_records(await asyncio.to_thread(self._scanner.read_all_records, live))
        if await self._ending.step():
            self._loops.wake("submit", "remove")

    async def _apply_scan(self, result: ScanResult) -> None:
        for found in result.found:
            self._add(found)
        for name, tombstone in result.tombstones.items():
            self.mark_deleted(name, tombstone)
        for name, last_tombstone in result.vanished.items():
            await self._handle_vanished(name, last_tombstone)
        self.apply_records(result.records)
        if result.found:
            self._loops.wake("submit")

    async def _handle_vanished(self, name: str, tombstone: Optional[Tombstone]) -> None:
        """Handle a job whose directory another submitter has deleted, or somebody by hand."""
        entry = self._table.get(name)
        if entry is None or (tombstone is not None and tombstone.lost):
            return
        self._waiting.pop(name, None)
        if tombstone is not None or entry.final:
            self._table.drop(name)
        else:
            await self._ending.end_vanished(entry)

    def apply_records(self, records: Iterable[Record]) -> None:
        by_job: dict[str, list[Record]] = {}
        for record in records:
            by_job.setdefault(record.job, []).append(record)
        for name, reported in by_job.items():
            entry = self._table.get(name)
            if entry is not None and entry.add_records(reported):
                self._table.mark_changed(entry)

    async def _poll(self) -> None:
        await self._polling.step()
        to_resubmit, self._polling.to_resubmit = self._polling.to_resubmit, []
        for entry in to_resubmit:
            if self._table.get(entry.name) is entry:
                self._waiting[entry.name] = entry
                self._loops.wake("submit")

    # --- submitting ---------------------------------------------------------------------------

    async def _submit(self) -> None:
        """Submit what waits, in order, until the batch system takes no more."""
        waiting = list(self._waiting.values())
        for start in range(0, len(waiting), BATCH_SIZE):
            batch = waiting[start : start + BATCH_SIZE]
            jobs = [e.job for e in batch if e.job is not None and e.name in self._waiting]
            attempts = await asyncio.to_thread(self._submission.attempt_all, jobs)
            for attempt in attempts:
                self._apply(attempt)
            if attempts and attempts[-1].outcome in (submission.WAITS, submission.UNCLEAR):
                self._is_full = True
                self._show_waiting(attempts[-1])
                return
        if self._is_full:
            self._is_full = False
            self._loops.wake("submit")  # for jobs that were accepted meanwhile

    def _apply(self, attempt: Attempt) -> None:
        entry = self._waiting.get(attempt.name)
        if entry is None or attempt.outcome in (submission.BUSY, submission.WAITS):
            return
        logger.info(
            "pool=%s job=%s: %s %s",
            self.context.pool.name,
            attempt.name,
            attempt.outcome,
            attempt.native or attempt.message,
        )
        if attempt.outcome in (submission.UNCLEAR, submission.DOUBTFUL):
            return
        del self._waiting[attempt.name]
        view = entry.view._replace(reason="", message="")
        if attempt.outcome == submission.SUBMITTED:
            entry.update(view._replace(phase=QUEUED, native=attempt.native))
        elif attempt.outcome == submission.REFUSED:
            message = f"the batch system refused the job: {attempt.message}"
            now_ms = int(time.time() * 1000)
            entry.update(view._replace(phase=ENDED, message=message, exit_code=1, at_ms=now_ms))
            self._loops.wake("look")
        self._table.mark_changed(entry)

    def _show_waiting(self, last: Attempt) -> None:
        """Show why jobs wait: the first for the batch system, the others for the first."""
        first = self._waiting.get(last.name)
        if first is not None:
            phase = QUEUED if last.outcome == submission.WAITS else ACCEPTED
            self._set_waiting(first, phase, last.message)
        if last.outcome == submission.WAITS:
            for entry in self._waiting.values():
                if entry is not first and entry.view.message != NOT_FIRST:
                    self._set_waiting(entry, QUEUED, NOT_FIRST)

    def _set_waiting(self, entry: TrackedJob, phase: str, message: str) -> None:
        if entry.update(entry.view._replace(phase=phase, reason=IN_QUEUE, message=message)):
            self._table.mark_changed(entry)
