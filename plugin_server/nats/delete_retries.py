"""Retries of pending deletes until their sites confirm them; in the loop's thread."""

from __future__ import annotations

import asyncio
import logging

from plugin_server.nats.gateway import Gateway
from plugin_server.state.delete_records import DeleteRecord
from plugin_server.state.pending_deletes import Deletions
from templates.common.errors import PodRejected, WireError
from templates.nats.requests import LinkError
from templates.protocol import messages
from templates.protocol.messages import Delete

logger = logging.getLogger(__name__)

REPLY_TIMEOUT_S = 10.0
BATCH = 16  # concurrent requests per pool
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 10.0


class DeleteRetries:
    """Tasks that send pending deletes, one task per pool."""

    def __init__(self, gateway: Gateway, deletions: Deletions) -> None:
        self._gateway = gateway
        self._deletions = deletions
        self._last_errors: dict[str, str] = {}  # job -> why its last delete failed
        self._wake: dict[str, asyncio.Event] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def resume(self) -> None:
        """Continue with deletes that were pending when the plugin last ran."""
        for pool in await asyncio.to_thread(self._deletions.load):
            self.send(pool)

    def wake(self, pool: str) -> None:
        """Retry the pending deletes of a pool that was heard from."""
        if pool in self._wake and self._deletions.pending(pool):
            self._wake[pool].set()

    def send(self, pool: str) -> None:
        """Send the deletes that were added for a pool."""
        if pool not in self._wake:
            self._wake[pool] = asyncio.Event()
            self._tasks.append(asyncio.ensure_future(self._delete_loop(pool)))
        self._wake[pool].set()

    async def _delete_loop(self, pool: str) -> None:
        """Send the pending deletes of a pool until all are confirmed, for ever."""
        wake, pause = self._wake[pool], FIRST_PAUSE_S
        while True:
            if not self._deletions.pending(pool):
                await wake.wait()
                pause = FIRST_PAUSE_S
            wake.clear()
            if await self._delete_all(self._deletions.pending(pool)):
                pause = FIRST_PAUSE_S
                continue
            try:
                await asyncio.wait_for(wake.wait(), pause)
            except asyncio.TimeoutError:
                pause = min(pause * 2, LONGEST_PAUSE_S)

    async def _delete_all(self, records: list[DeleteRecord]) -> bool:
        """Return whether all were confirmed; stop at the first batch with a failure."""
        for first in range(0, len(records), BATCH):
            batch = records[first : first + BATCH]
            if not all(await asyncio.gather(*map(self._request_delete, batch))):
                return False
        return True

    async def _request_delete(self, record: DeleteRecord) -> bool:
        delete = Delete(record.job, record.grace_period_s)
        try:
            refusal = await self._gateway.delete(record.pool, delete, REPLY_TIMEOUT_S)
        except (LinkError, WireError, PodRejected) as error:
            self._log_once(record, f"has not confirmed its deletion: {error}")
            return False
        if refusal is not None and refusal.retry:
            self._log_once(record, f"has not deleted it yet: {refusal.message}")
            return False
        self._last_errors.pop(record.job, None)
        if refusal is not None and refusal.code != messages.UNKNOWN:
            logger.error("%s: pool %s refused: %s", record.job, record.pool, refusal.message)
        else:
            logger.info(
                "%s: pool %s deletes it", record.job, record.pool, extra={"job": record.job}
            )
        await asyncio.to_thread(self._deletions.confirm, record)
        return True

    def _log_once(self, record: DeleteRecord, message: str) -> None:
        """Log an error once, not at every retry: a site may be away for days, or for ever."""
        if self._last_errors.get(record.job) != message:
            self._last_errors[record.job] = message
            logger.info(
                "%s: pool %s %s", record.job, record.pool, message, extra={"job": record.job}
            )
