"""Jobs that have ended: their final status is written, and the batch system is cleaned up.

The final status is written once, so that every restart and every other submitter reports the same
end.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Callable, Optional

from submitter.backends.base import JobRef
from submitter.common.errors import SubmitterError
from submitter.jobs.context import PoolContext
from submitter.jobs.poll import format_time
from submitter.jobs.table import TrackedJob
from templates.job.status import ENDED
from templates.protocol.messages import Delete

logger = logging.getLogger(__name__)

VANISHED = "the job's directory was removed at the site before the job had ended; seen at"

ResolveNativeId = Callable[[str], Optional[str]]  # of submit.py


class Ending:
    """The steps after the end of one pool's jobs."""

    def __init__(
        self, context: PoolContext, resolve_native_id: ResolveNativeId = lambda name: ""
    ) -> None:
        self._context = context
        self._resolve_native_id = resolve_native_id
        self.has_pending = False
        """Set while a job that has ended is not clean yet."""

    async def step(self) -> bool:
        """Finish what has ended; return whether the batch system may take more jobs now."""
        live = list(self._context.table.live.values())
        ended = [entry for entry in live if entry.has_ended and not entry.final]
        ready = [entry for entry in ended if await self._knows_native_id(entry)]
        if ready:
            await self._write_final(ready)
        final = [entry for entry in live if entry.final]
        cleaned = await self._clean(final) if final else 0
        self.has_pending = cleaned < len(final) or len(ready) < len(ended)
        return cleaned > 0

    async def _knows_native_id(self, entry: TrackedJob) -> bool:
        """Return whether the job's native id is known; look it up where it is not.

        The job's records may report its end before we know that another submitter has submitted it.
        """
        if entry.native or entry.view.phase == ENDED:
            return True
        native = await asyncio.to_thread(self._resolve_native_id, entry.name)
        if native is None:
            return False
        # The reason why it waited has nothing to do with its end.
        entry.update(entry.view._replace(native=native, reason="", message=""))
        return True

    async def _write_final(self, ended: Sequence[TrackedJob]) -> None:
        dumps = [(entry.name, entry.dump()) for entry in ended]
        journal = self._context.journal

        def write() -> list[bytes]:
            written = []
            for name, dumped in dumps:
                try:
                    written.append(journal.write_final(name, dumped))
                except OSError as error:  # the status counts all the same
                    logger.warning("job=%s: its end is not written: %s", name, error.strerror)
                    written.append(dumped)
            return written

        for entry, dumped in zip(ended, await asyncio.to_thread(write)):
            entry.finish(dumped)
            self._context.table.mark_changed(entry)

    async def _clean(self, ended: Sequence[TrackedJob]) -> int:
        """Remove ended jobs from the batch system, and their secrets from the disk."""
        context = self._context
        submitted = [entry.ref(context.journal.of(entry.name)) for entry in ended if entry.native]
        unsubmitted = [entry.name for entry in ended if not entry.native]
        clean = await asyncio.to_thread(self._clean_blocking, submitted, unsubmitted)
        for entry in ended:
            if entry.name in clean:
                context.table.mark_cleaned(entry)
        return len(clean)

    def _clean_blocking(self, submitted: Sequence[JobRef], unsubmitted: Sequence[str]) -> set[str]:
        clean = self._context.backend.clean(submitted) if submitted else set()
        clean.update(unsubmitted)
        for name in clean:
            self._context.journal.forget_secrets(name)
        return clean

    async def end_vanished(self, entry: TrackedJob) -> None:
        """End a job whose directory was removed by hand, so that it is never created again."""
        context, at_ms = self._context, int(time.time() * 1000)
        message = f"{VANISHED} {format_time(at_ms)}"
        logger.warning("pool=%s job=%s: %s", context.pool.name, entry.name, message)
        view = entry.view._replace(
            phase=ENDED, reason="", message=message, exit_code=1, at_ms=at_ms
        )
        entry.update(view)
        ref = entry.ref(context.journal.of(entry.name))

        def end() -> None:
            context.journal.bury([Delete(entry.name, 0)], lost=True)
            if ref.native:
                context.backend.cancel([ref], kill=True)

        entry.finish(entry.dump())
        context.table.mark_changed(entry)
        try:
            await asyncio.to_thread(end)
        except SubmitterError as error:  # the cleanup of ended jobs tries again
            logger.warning("pool=%s job=%s: %s", context.pool.name, entry.name, error)
