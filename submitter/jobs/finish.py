"""Jobs that have ended: their last status is written down, what they left is cleaned up.

What ended a job is told by its records, or else by its last status: that is written down once, so
that no restart and no other submitter tells another story.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Callable, Optional

from submitter.backends.base import Ticket
from submitter.common.errors import SubmitterError
from submitter.jobs.context import Site
from submitter.jobs.poll import clock
from submitter.jobs.table import Entry
from templates.job.status import ENDED
from templates.protocol.messages import Delete

logger = logging.getLogger(__name__)

VANISHED = "the job's directory was removed at the site before the job had ended; seen at"


Learned = Callable[[str], Optional[str]]  # of submission.py


class Ending:
    """The ends of one pool's jobs."""

    def __init__(self, site: Site, learned: Learned = lambda name: "") -> None:
        self._site = site
        self._learned = learned
        self.waits = False
        """Whether a job that has ended is not clean yet."""

    async def step(self) -> bool:
        """One round; whether room may have become free."""
        live = list(self._site.table.live.values())
        ended = [entry for entry in live if entry.has_ended and not entry.final]
        certain = [entry for entry in ended if await self._is_certain(entry)]
        if certain:
            await self._write_down(certain)
        final = [entry for entry in live if entry.final]
        cleaned = await self._clean(final) if final else 0
        self.waits = cleaned < len(final) or len(certain) < len(ended)
        return cleaned > 0

    async def _is_certain(self, entry: Entry) -> bool:
        """Whether it is known what it is called in the batch system.

        Its own records may tell its end before we know that another submitter has handed it over.
        """
        if entry.native or entry.outlook.phase == ENDED:
            return True
        native = await asyncio.to_thread(self._learned, entry.name)
        if native is None:
            return False
        # What it has waited for is no part of its end.
        entry.look(entry.outlook._replace(native=native, reason="", message=""))
        return True

    async def _write_down(self, ended: Sequence[Entry]) -> None:
        dumps = [(entry.name, entry.dump()) for entry in ended]
        journal = self._site.journal

        def write() -> list[bytes]:
            written = []
            for name, dumped in dumps:
                try:
                    written.append(journal.write_final(name, dumped))
                except OSError as error:  # it counts all the same
                    logger.warning("job=%s: its end is not written: %s", name, error.strerror)
                    written.append(dumped)
            return written

        for entry, dumped in zip(ended, await asyncio.to_thread(write)):
            entry.finish(dumped)
            self._site.table.changed(entry)

    async def _clean(self, ended: Sequence[Entry]) -> int:
        """Nothing of an ended job stays in the batch system, nor anything secret on disk."""
        site = self._site
        handed = [entry.ticket(site.journal.of(entry.name)) for entry in ended if entry.native]
        others = [entry.name for entry in ended if not entry.native]
        clean = await asyncio.to_thread(self._cleaned, handed, others)
        for entry in ended:
            if entry.name in clean:
                site.table.settle(entry)
        return len(clean)

    def _cleaned(self, handed: Sequence[Ticket], others: Sequence[str]) -> set[str]:
        clean = self._site.backend.clean(handed) if handed else set()
        clean.update(others)
        for name in clean:
            self._site.journal.forget_secrets(name)
        return clean

    async def vanished(self, entry: Entry) -> None:
        """A job's directory was removed by hand: the job is over, and never made again."""
        site, at_ms = self._site, int(time.time() * 1000)
        words = f"{VANISHED} {clock(at_ms)}"
        logger.warning("pool=%s job=%s: %s", site.pool.name, entry.name, words)
        outlook = entry.outlook._replace(
            phase=ENDED, reason="", message=words, exit_code=1, at_ms=at_ms
        )
        entry.look(outlook)
        ticket = entry.ticket(site.journal.of(entry.name))

        def end() -> None:
            site.journal.bury([Delete(entry.name, 0)], lost=True)
            if ticket.native:
                site.backend.cancel([ticket], kill=True)

        entry.finish(entry.dump())
        site.table.changed(entry)
        try:
            await asyncio.to_thread(end)
        except SubmitterError as error:  # what is left is seen to once more when it is cleaned up
            logger.warning("pool=%s job=%s: %s", site.pool.name, entry.name, error)
