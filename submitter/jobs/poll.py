"""What the batch system says of all jobs, with one question, and what to believe of it.

The job script's own records say more and count more. The batch system alone is believed that a job
is over only when there was time for the last records to arrive, and that it does not know a job
only when it has said so for a while. That it did not answer means nothing at all.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Callable, Optional

from submitter.backends.base import Sighting
from submitter.jobs.context import Site
from submitter.jobs.scanner import records_of
from submitter.jobs.table import Entry
from submitter.store.journal import read
from templates.job.records import Record
from templates.job.status import ENDED, IN_QUEUE, QUEUED, STARTED

logger = logging.getLogger(__name__)

SETTLE_DELETED_S = 3.0  # nobody waits long for the last records of a pod that is deleted
AGAIN = "the batch system lost the job before it began; it is submitted again"
_UNSEEN = Sighting()

TakeBack = Callable[[str, str], Optional[str]]  # of submission.py


class Polling:
    """The questions about one pool's jobs."""

    def __init__(self, site: Site, take_back: TakeBack = lambda name, native: None) -> None:
        self._site = site
        self._take_back = take_back
        self.taken_back: list[Entry] = []
        """Jobs that have to be submitted once more."""
        self._answered: Optional[float] = None  # when the batch system last did

    def pause(self) -> float:
        """Until the next question."""
        poll_s = self._site.pool.timing.poll_s
        urgent_s = self._site.backend.urgent_s
        doubt = urgent_s and any(
            entry.ended_since is not None or entry.stone is not None or _was_told(entry)
            for entry in self._site.table.live.values()
        )
        return min(urgent_s, poll_s) if doubt else poll_s

    async def step(self) -> None:
        """Ask once; raises ``BackendUnavailable``."""
        site = self._site
        asked = [
            entry for entry in site.table.live.values() if entry.native and not entry.has_ended
        ]
        if not asked:
            return
        tickets = [entry.ticket(site.journal.of(entry.name)) for entry in asked]
        runs = {entry.name: entry.said.run for entry in asked}  # what the answer can be about
        sightings = await asyncio.to_thread(site.backend.poll, tickets)
        now = time.monotonic()
        since = now - self._answered if self._answered is not None else 0.0
        self._answered = now
        since = min(since, 2.0 * site.pool.timing.poll_s)  # silence in between proves nothing
        for entry in asked:
            if sightings.get(entry.name, _UNSEEN).requeued:
                entry.look(entry.outlook._replace(given_up_run=runs[entry.name]))
        over = [entry for entry in asked if self._take(entry, sightings, since, now)]
        if over:
            await self._give_up(over, sightings)

    def _take(
        self, entry: Entry, sightings: Mapping[str, Sighting], since: float, now: float
    ) -> bool:
        """Believe what is said of a job; whether that leaves it without hope."""
        sighting = sightings.get(entry.name)
        if sighting is None:
            entry.missing_s += since
            patience = self._site.backend.lost_after_s or self._site.pool.timing.lost_after_s
            return entry.missing_s >= patience
        entry.missing_s = 0.0
        if sighting.phase == ENDED:
            entry.ended_since = entry.ended_since or now
            return now - entry.ended_since >= self._settle_s(entry)
        entry.ended_since = None
        outlook = entry.outlook._replace(phase=sighting.phase, reason="", message="")
        if sighting.phase != STARTED:
            outlook = outlook._replace(reason=sighting.reason, message=sighting.message)
        if entry.look(outlook):
            self._site.table.changed(entry)
        return False

    def _settle_s(self, entry: Entry) -> float:
        """How long its last records may be on their way."""
        if entry.said.finished_ms:
            return 0.0  # they have arrived
        settle_s = self._site.backend.settle_s
        return settle_s if entry.stone is None else min(settle_s, SETTLE_DELETED_S)

    async def _give_up(self, over: list[Entry], sightings: Mapping[str, Sighting]) -> None:
        """A job without a last word is over, unless the word is there after all."""
        journal = self._site.journal

        def look() -> list[tuple[list[Record], Optional[bytes]]]:
            names = [entry.name for entry in over]
            return [
                (records_of(journal, name), read(f"{journal.of(name)}/final")) for name in names
            ]

        for entry, (records, final) in zip(over, await asyncio.to_thread(look)):
            entry.hear(records)
            sighting = sightings.get(entry.name)
            if final is not None:  # another submitter has written down what ended it
                entry.finish(final)
            elif not entry.has_ended and not await self._is_taken_back(entry, sighting):
                self._end(entry, sighting)
            self._site.table.changed(entry)

    async def _is_taken_back(self, entry: Entry, sighting: Optional[Sighting]) -> bool:
        """Whether a job that got lost before it began is not lost: it is submitted again."""
        if entry.stone is not None or (sighting is not None and not sighting.lost):
            return False
        native = await asyncio.to_thread(self._take_back, entry.name, entry.native)
        if native is None or native == entry.native:
            return native is not None
        logger.warning("pool=%s job=%s: %s", self._site.pool.name, entry.name, AGAIN)
        entry.missing_s, entry.ended_since = 0.0, None
        waiting = entry.outlook._replace(
            phase=QUEUED, reason=IN_QUEUE, message=AGAIN, native=native
        )
        entry.look(waiting)
        if not native:
            self.taken_back.append(entry)
        return True

    def _end(self, entry: Entry, sighting: Optional[Sighting]) -> None:
        at_ms = int(time.time() * 1000)
        if entry.stone is not None:
            words, code = "the pod was deleted", 143
        elif sighting is None:
            words, code = "no end was recorded", 1
            words = f"the job vanished from the batch system at {clock(at_ms)}: {words}"
        else:
            at_ms = sighting.at_ms or at_ms
            words = sighting.message or "the batch system says that it is over"
            if not entry.said.finished_ms:
                words = f"the job ended at {clock(at_ms)} without a record of its end: {words}"
            if sighting.reason:
                words = f"{sighting.reason}: {words}"
            elif entry.said.terminated_by_signal and sighting.if_told:
                words = f"{sighting.if_told}: {words}"
            code = sighting.exit_code or 1
        entry.look(
            entry.outlook._replace(
                phase=ENDED, reason="", message=words, exit_code=code, at_ms=at_ms
            )
        )
        logger.info("pool=%s job=%s: %s", self._site.pool.name, entry.name, words)


def _was_told(entry: Entry) -> bool:
    """Whether its script was told to end, and has: its cause is still to be learned."""
    return entry.said.terminated_by_signal and not entry.has_ended


def clock(at_ms: int) -> str:
    """A time as people and machines read it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_ms / 1000))
