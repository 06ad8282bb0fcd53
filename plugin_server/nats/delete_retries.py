"""Pending deletes, told to their sites until they are confirmed; in the loop's thread."""

from __future__ import annotations

import asyncio
import logging

from plugin_server.nats.gateway import Gateway
from plugin_server.state.delete_records import Intent
from plugin_server.state.pending_deletes import Deletions
from templates.common.errors import PodRejected, WireError
from templates.nats.requests import LinkError
from templates.protocol import messages
from templates.protocol.messages import Delete

logger = logging.getLogger(__name__)

ANSWER_S = 10.0
AT_ONCE = 16  # per pool
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 10.0


class DeleteRetries:
    """One task for each pool that has something to delete."""

    def __init__(self, gateway: Gateway, deletions: Deletions) -> None:
        self._gateway = gateway
        self._deletions = deletions
        self._complaints: dict[str, str] = {}  # job -> why it was not deleted the last time
        self._wake: dict[str, asyncio.Event] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def resume(self) -> None:
        """Go on with what was not confirmed when the plugin last ran."""
        for pool in await asyncio.to_thread(self._deletions.load):
            self.go(pool)

    def wake(self, pool: str) -> None:
        """A pool was heard of: what waits for it is worth a try."""
        if pool in self._wake and self._deletions.pending(pool):
            self._wake[pool].set()

    def go(self, pool: str) -> None:
        """Begin with what has been added for a pool."""
        if pool not in self._wake:
            self._wake[pool] = asyncio.Event()
            self._tasks.append(asyncio.ensure_future(self._keep_deleting(pool)))
        self._wake[pool].set()

    async def _keep_deleting(self, pool: str) -> None:
        """Tell a site what to delete until it has confirmed all of it, for ever."""
        wake, pause = self._wake[pool], FIRST_PAUSE_S
        while True:
            if not self._deletions.pending(pool):
                await wake.wait()
                pause = FIRST_PAUSE_S
            wake.clear()
            if await self._round(self._deletions.pending(pool)):
                pause = FIRST_PAUSE_S
                continue
            try:
                await asyncio.wait_for(wake.wait(), pause)
            except asyncio.TimeoutError:
                pause = min(pause * 2, LONGEST_PAUSE_S)

    async def _round(self, intents: list[Intent]) -> bool:
        """Whether all of them are confirmed; the first one that fails ends the round."""
        for start in range(0, len(intents), AT_ONCE):
            some = intents[start : start + AT_ONCE]
            if not all(await asyncio.gather(*map(self._tell, some))):
                return False
        return True

    async def _tell(self, intent: Intent) -> bool:
        delete = Delete(intent.job, intent.grace_period_s)
        try:
            refusal = await self._gateway.delete(intent.pool, delete, ANSWER_S)
        except (LinkError, WireError, PodRejected) as error:
            self._complain(intent, f"has not confirmed its deletion: {error}")
            return False
        if refusal is not None and refusal.retry:
            self._complain(intent, f"has not deleted it yet: {refusal.message}")
            return False
        self._complaints.pop(intent.job, None)
        if refusal is not None and refusal.code != messages.UNKNOWN:
            logger.error("%s: pool %s refused: %s", intent.job, intent.pool, refusal.message)
        else:
            logger.info(
                "%s: pool %s deletes it", intent.job, intent.pool, extra={"job": intent.job}
            )
        await asyncio.to_thread(self._deletions.confirm, intent)
        return True

    def _complain(self, intent: Intent, words: str) -> None:
        """Once, however often it is tried: a site may be away for days, or for ever."""
        if self._complaints.get(intent.job) != words:
            self._complaints[intent.job] = words
            logger.info("%s: pool %s %s", intent.job, intent.pool, words, extra={"job": intent.job})
