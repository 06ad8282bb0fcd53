"""Deletes: answered at once, remembered, and repeated until the site has confirmed them.

interLink asks once and never again, whatever we answer; so a deletion must outlive a site that is
away, and this process.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from typing import Callable, Optional

from plugin_server.nats.gateway import Gateway
from plugin_server.state.pending_deletes import Intent, IntentKeeper
from templates.common.errors import PodRejected, WireError
from templates.common.names import uid_of
from templates.nats.requests import LinkError
from templates.protocol import messages
from templates.protocol.messages import Delete

logger = logging.getLogger(__name__)

ANSWER_S = 10.0
AT_ONCE = 16  # per pool
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 10.0
KEPT_S = 3600.0  # how long a deleted pod is remembered, so that a late create of it is refused


class Deletions:
    """What has to be deleted, and what was."""

    def __init__(
        self,
        gateway: Gateway,
        keepers: Sequence[IntentKeeper],
        soon: Callable[[Callable[[], object]], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gateway = gateway
        self._keepers = keepers
        self._soon = soon
        self._clock = clock
        self._deleted: dict[str, float] = {}  # uid -> when; in the order of time
        self._waiting: dict[str, dict[str, Intent]] = {}  # pool -> job -> intent
        self._complaints: dict[str, str] = {}  # job -> why it was not deleted the last time
        self._wake: dict[str, asyncio.Event] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._lock = threading.Lock()

    # --- from any thread ------------------------------------------------------------------------

    def add(self, pool: str, job: str, grace_period_s: Optional[int]) -> None:
        """Promise that a job ends, and is never begun if it has not been."""
        intent = Intent(pool, job, grace_period_s)
        for keeper in self._keepers:
            keeper.add(intent)
        self._take(intent)
        self._soon(lambda: self._go(pool))

    def _take(self, intent: Intent) -> None:
        with self._lock:
            self._mark(uid_of(intent.job))
            self._waiting.setdefault(intent.pool, {})[intent.job] = intent

    def mark(self, uid: str) -> None:
        """A pod that is gone although nothing has to be deleted for it."""
        with self._lock:
            self._mark(uid)

    def _mark(self, uid: str) -> None:
        now = self._clock()
        self._deleted.pop(uid, None)
        self._deleted[uid] = now
        while self._deleted:
            oldest = next(iter(self._deleted))
            if now - self._deleted[oldest] < KEPT_S:
                break
            del self._deleted[oldest]

    def is_deleted(self, uid: str) -> bool:
        """Whether a pod's deletion was asked for lately."""
        return uid in self._deleted

    def waiting(self) -> dict[str, int]:
        """How many deletions of each pool its site has not confirmed."""
        with self._lock:
            return {pool: len(intents) for pool, intents in self._waiting.items()}

    # --- in the loop's thread -------------------------------------------------------------------

    async def resume(self) -> None:
        """Go on with what was not confirmed when the plugin last ran."""
        for keeper in self._keepers:
            for intent in await asyncio.to_thread(keeper.load):
                self._take(intent)
        for pool in list(self._waiting):
            self._go(pool)

    def wake(self, pool: str) -> None:
        """A pool was heard of: what waits for it is worth a try."""
        if self._waiting.get(pool) and pool in self._wake:
            self._wake[pool].set()

    def _go(self, pool: str) -> None:
        if pool not in self._wake:
            self._wake[pool] = asyncio.Event()
            self._tasks.append(asyncio.ensure_future(self._keep_deleting(pool)))
        self._wake[pool].set()

    async def _keep_deleting(self, pool: str) -> None:
        """Tell a site what to delete until it has confirmed all of it, for ever."""
        wake, pause = self._wake[pool], FIRST_PAUSE_S
        while True:
            if not self._waiting.get(pool):
                await wake.wait()
                pause = FIRST_PAUSE_S
            wake.clear()
            with self._lock:
                intents = list(self._waiting.get(pool, {}).values())
            if await self._round(intents):
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
        with self._lock:
            self._waiting.get(intent.pool, {}).pop(intent.job, None)
        for keeper in self._keepers:
            await asyncio.to_thread(keeper.remove, intent.job)
        return True

    def _complain(self, intent: Intent, words: str) -> None:
        """Once, however often it is tried: a site may be away for days, or for ever."""
        if self._complaints.get(intent.job) != words:
            self._complaints[intent.job] = words
            logger.info("%s: pool %s %s", intent.job, intent.pool, words, extra={"job": intent.job})
