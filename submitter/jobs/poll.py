"""Polling: one query to the batch system for all jobs, and how far its answer is trusted.

The records of the job's script say more and take precedence. The batch system alone ends a job only
after the last records had time to arrive, or after the job has been missing for a while. No answer
changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Callable, Optional

from submitter.backends.base import Observation
from submitter.jobs.context import PoolContext
from submitter.jobs.scanner import read_records
from submitter.jobs.table import TrackedJob
from templates.job.records import Record
from templates.job.status import ENDED, IN_QUEUE, QUEUED, STARTED

logger = logging.getLogger(__name__)

SETTLE_DELETED_S = 3.0  # the last records of a deleted pod are not worth a long wait
RESUBMITTED = "the batch system lost the job before it began; it is submitted again"
_NOT_SEEN = Observation()

PrepareResubmit = Callable[[str, str], Optional[str]]  # of submit.py


class Polling:
    """Periodic queries about one pool's jobs."""

    def __init__(
        self, context: PoolContext, prepare_resubmit: PrepareResubmit = lambda name, native: None
    ) -> None:
        self._context = context
        self._prepare_resubmit = prepare_resubmit
        self.to_resubmit: list[TrackedJob] = []
        """Jobs that have to be submitted again."""
        self._last_answer: Optional[float] = None

    def pause(self) -> float:
        """Return the seconds until the next query."""
        poll_s = self._context.pool.timing.poll_s
        urgent_s = self._context.backend.urgent_s
        urgent = urgent_s and any(
            entry.ended_since is not None or entry.tombstone is not None or _was_terminated(entry)
            for entry in self._context.table.live.values()
        )
        return min(urgent_s, poll_s) if urgent else poll_s

    async def step(self) -> None:
        """Query once; raise ``BackendUnavailable`` without an answer."""
        context = self._context
        polled = [
            entry for entry in context.table.live.values() if entry.native and not entry.has_ended
        ]
        if not polled:
            return
        refs = [entry.ref(context.journal.of(entry.name)) for entry in polled]
        runs = {entry.name: entry.reported.run for entry in polled}  # as the query was sent
        observations = await asyncio.to_thread(context.backend.poll, refs)
        now = time.monotonic()
        elapsed_s = now - self._last_answer if self._last_answer is not None else 0.0
        self._last_answer = now
        elapsed_s = min(
            elapsed_s, 2.0 * context.pool.timing.poll_s
        )  # time without answers proves nothing
        for entry in polled:
            if observations.get(entry.name, _NOT_SEEN).requeued:
                entry.update(entry.view._replace(given_up_run=runs[entry.name]))
        given_up = [
            entry
            for entry in polled
            if self._apply_observation(entry, observations, elapsed_s, now)
        ]
        if given_up:
            await self._give_up(given_up, observations)

    def _apply_observation(
        self,
        entry: TrackedJob,
        observations: Mapping[str, Observation],
        elapsed_s: float,
        now: float,
    ) -> bool:
        """Update the job; return whether it should be given up."""
        observation = observations.get(entry.name)
        if observation is None:
            entry.missing_s += elapsed_s
            lost_after_s = (
                self._context.backend.lost_after_s or self._context.pool.timing.lost_after_s
            )
            return entry.missing_s >= lost_after_s
        entry.missing_s = 0.0
        if observation.phase == ENDED:
            entry.ended_since = entry.ended_since or now
            return now - entry.ended_since >= self._settle_time_s(entry)
        entry.ended_since = None
        view = entry.view._replace(phase=observation.phase, reason="", message="")
        if observation.phase != STARTED:
            view = view._replace(reason=observation.reason, message=observation.message)
        if entry.update(view):
            self._context.table.mark_changed(entry)
        return False

    def _settle_time_s(self, entry: TrackedJob) -> float:
        """Return how long the last records may take to arrive."""
        if entry.reported.finished_ms:
            return 0.0  # all of them have
        settle_s = self._context.backend.settle_s
        return settle_s if entry.tombstone is None else min(settle_s, SETTLE_DELETED_S)

    async def _give_up(
        self, given_up: list[TrackedJob], observations: Mapping[str, Observation]
    ) -> None:
        """End jobs without a record of their end, unless one has arrived after all."""
        journal = self._context.journal

        def read_files() -> list[tuple[list[Record], Optional[bytes]]]:
            names = [entry.name for entry in given_up]
            return [(read_records(journal, name), journal.read_final(name)) for name in names]

        for entry, (records, final) in zip(given_up, await asyncio.to_thread(read_files)):
            entry.add_records(records)
            observation = observations.get(entry.name)
            if final is not None:  # another submitter has written the final status
                entry.finish(final)
            elif not entry.has_ended and not await self._is_resubmitted(entry, observation):
                self._set_ended(entry, observation)
            self._context.table.mark_changed(entry)

    async def _is_resubmitted(self, entry: TrackedJob, observation: Optional[Observation]) -> bool:
        """Return whether the job was lost before it began and is submitted again."""
        if entry.tombstone is not None or (observation is not None and not observation.lost):
            return False
        native = await asyncio.to_thread(self._prepare_resubmit, entry.name, entry.native)
        if native is None or native == entry.native:
            return native is not None
        logger.warning("pool=%s job=%s: %s", self._context.pool.name, entry.name, RESUBMITTED)
        entry.missing_s, entry.ended_since = 0.0, None
        waiting = entry.view._replace(
            phase=QUEUED, reason=IN_QUEUE, message=RESUBMITTED, native=native
        )
        entry.update(waiting)
        if not native:
            self.to_resubmit.append(entry)
        return True

    def _set_ended(self, entry: TrackedJob, observation: Optional[Observation]) -> None:
        at_ms = int(time.time() * 1000)
        if entry.tombstone is not None:
            message, code = "the pod was deleted", 143
        elif observation is None:
            vanished = f"the job vanished from the batch system at {format_time(at_ms)}"
            message, code = f"{vanished}: no end was recorded", 1
        else:
            at_ms = observation.at_ms or at_ms
            message = observation.message or "the batch system says that it is over"
            if not entry.reported.finished_ms:
                ended = f"the job ended at {format_time(at_ms)} without a record of its end"
                message = f"{ended}: {message}"
            if observation.reason:
                message = f"{observation.reason}: {message}"
            elif entry.reported.terminated_by_signal and observation.if_terminated:
                message = f"{observation.if_terminated}: {message}"
            code = observation.exit_code or 1
        entry.update(
            entry.view._replace(
                phase=ENDED, reason="", message=message, exit_code=code, at_ms=at_ms
            )
        )
        logger.info("pool=%s job=%s: %s", self._context.pool.name, entry.name, message)


def _was_terminated(entry: TrackedJob) -> bool:
    """Return whether the script ended because it was told to, and the cause is not known yet."""
    return entry.reported.terminated_by_signal and not entry.has_ended


def format_time(at_ms: int) -> str:
    """Return a time in the form of RFC 3339."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_ms / 1000))
