"""Pending submits: jobs for the same site are sent in batches.

The first is sent at once; those that arrive before the reply share the next message, if the reply
comes soon. A slow site delays no one: the next message is sent without waiting for its reply.

A submit is retried until its site replies or its deadline passes. A site that has not replied may
still accept the job: then the job is deleted there before the pod fails, so that the message that
the user reads is true.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Coroutine, Sequence
from typing import Any, Optional

from plugin_server.common.errors import Deleted, Refused
from plugin_server.nats.bridge import BridgeError
from plugin_server.nats.gateway import Gateway
from plugin_server.state.pending_deletes import Deletions
from templates.common.errors import WireError
from templates.job.model import Job
from templates.nats.requests import LinkError, NoResponders, NotConnected, Unanswered
from templates.protocol import messages
from templates.protocol.messages import Refusal

logger = logging.getLogger(__name__)

REPLY_TIMEOUT_S = 8.0  # of the first request; doubled for each retry, for large jobs
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
MIN_REPLY_TIMEOUT_S = 0.5
NEXT_BATCH_S = 0.02  # how long the next batch waits for the reply to the one before
MAX_BATCH_BYTES = 192 * 1024  # of scripts and files, unless a single job has more


class PendingSubmit:
    """Submit of a job, and its result, for which the thread of a create request waits."""

    def __init__(self, pool: str, job: Job, timeout_s: float) -> None:
        self.pool, self.job = pool, job
        self.timeout_s = timeout_s
        self.deadline = time.monotonic() + timeout_s
        self.size = len(job.script) + sum(len(file.content) for file in job.files)
        self.error = "was not asked"
        self.maybe_accepted = False  # the site may have accepted the job without replying
        self._refused: Optional[Refused] = None
        self._finished = threading.Event()

    def finish(self, refused: Optional[Refused]) -> None:
        """Set the result: None if the site has accepted the job."""
        self._refused = refused
        self._finished.set()

    def wait(self, timeout_s: float) -> Optional[Refused]:
        """Return the result; raises ``BridgeError`` after the timeout."""
        if not self._finished.wait(timeout_s):
            raise BridgeError(f"not done within {timeout_s:g} s")
        return self._refused

    @property
    def remaining_s(self) -> float:
        """Return the seconds until the deadline."""
        return self.deadline - time.monotonic()


class PoolQueue:
    """Queue of submits for one pool."""

    def __init__(self) -> None:
        self.waiting: list[PendingSubmit] = []
        self.in_flight: Optional[object] = None  # the batch whose reply is expected soon

    def next_batch(self) -> list[PendingSubmit]:
        """Remove and return the submits of the next message, oldest first."""
        size, count = 0, 0
        for submit in self.waiting:
            size += submit.size
            if count and size > MAX_BATCH_BYTES:
                break
            count += 1
        batch, self.waiting = self.waiting[:count], self.waiting[count:]
        return batch


class Sender:
    """Sender of jobs to their sites; lives in the loop's thread."""

    def __init__(self, gateway: Gateway, deletions: Deletions) -> None:
        self._gateway = gateway
        self._deletions = deletions
        self._queues: dict[str, PoolQueue] = {}
        self._unfinished: set[PendingSubmit] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_stopped = False

    def add(self, submits: list[PendingSubmit]) -> None:
        """Queue submits and send them; ``finish`` gets the result of each."""
        for submit in submits:
            self._unfinished.add(submit)
            if self._has_stopped:
                self._finish(submit, refusal_when_stopping(submit))
            else:
                self._queues.setdefault(submit.pool, PoolQueue()).waiting.append(submit)
        for pool in {submit.pool for submit in submits}:
            if pool in self._queues:
                self._flush(self._queues[pool])

    async def stop(self) -> None:
        """Stop sending, and reject all pending submits."""
        self._has_stopped = True
        for task in self._tasks:
            task.cancel()
        for submit in list(self._unfinished):
            self._finish(submit, refusal_when_stopping(submit))

    def _finish(self, submit: PendingSubmit, refused: Optional[Refused] = None) -> None:
        if submit in self._unfinished:
            self._unfinished.remove(submit)
            submit.finish(refused)

    def _flush(self, queue: PoolQueue) -> None:
        """Send the next batch, unless the reply to another one is expected soon."""
        if queue.in_flight is None and queue.waiting:
            batch = queue.in_flight = queue.next_batch()
            self._run(self._send_batch(queue, batch))
            asyncio.get_running_loop().call_later(NEXT_BATCH_S, self._flush_next, queue, batch)

    def _flush_next(self, queue: PoolQueue, batch: list[PendingSubmit]) -> None:
        if queue.in_flight is batch:
            queue.in_flight = None
            self._flush(queue)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_batch(self, queue: PoolQueue, submits: list[PendingSubmit]) -> None:
        """Send submits in one message, then retry each that may be retried."""
        try:
            retryable = await self._send(submits, REPLY_TIMEOUT_S)
        finally:
            self._flush_next(queue, submits)
        for submit in retryable:
            self._run(self._retry_until_deadline(submit))

    async def _retry_until_deadline(self, submit: PendingSubmit) -> None:
        """Retry one submit until the site accepts or rejects it, or its deadline passes."""
        pause_s, reply_timeout_s = FIRST_PAUSE_S, 2 * REPLY_TIMEOUT_S
        while True:
            wait_s = pause_s * random.uniform(0.5, 1.0)  # noqa: S311 (not a secret)
            if wait_s >= submit.remaining_s:
                self._finish(submit, _timed_out(submit))
                return
            await asyncio.sleep(wait_s)
            if not await self._send([submit], reply_timeout_s):
                return
            pause_s, reply_timeout_s = min(pause_s * 2, LONGEST_PAUSE_S), reply_timeout_s * 2

    async def _send(
        self, submits: list[PendingSubmit], reply_timeout_s: float
    ) -> list[PendingSubmit]:
        """Send one message; return the submits to retry."""
        sent = []
        for submit in submits:
            if self._deletions.is_deleted(submit.job.uid):
                submit.maybe_accepted = False
                self._finish(submit, Deleted(submit.job.pod))
            else:
                sent.append(submit)
        if not sent:
            return []
        remaining_s = max(MIN_REPLY_TIMEOUT_S, *(submit.remaining_s for submit in sent))
        refusals = await self._request_create(sent, min(reply_timeout_s, remaining_s))
        retryable = []
        for submit, refusal in zip(sent, refusals):
            if refusal is None:
                self._finish(submit)
            elif refusal.retry:
                submit.error = refusal.message
                retryable.append(submit)
            else:
                submit.maybe_accepted = False
                self._finish(submit, _rejection(submit, refusal))
        return retryable

    async def _request_create(
        self, submits: list[PendingSubmit], timeout_s: float
    ) -> Sequence[Optional[Refusal]]:
        pool = submits[0].pool
        maybe_accepted = False
        try:
            return await self._gateway.create(pool, [submit.job for submit in submits], timeout_s)
        except NoResponders:
            reason = "no submitter of it is connected"
        except NotConnected:
            error = self._gateway.connection_error or "just lost"
            reason = f"the plugin has no connection to NATS ({error})"
        except Unanswered:
            maybe_accepted, reason = True, "its submitter does not answer"
        except (LinkError, WireError) as link_error:
            maybe_accepted, reason = True, str(link_error)
        for submit in submits:
            submit.maybe_accepted |= maybe_accepted
        return [Refusal(messages.UNAVAILABLE, reason, True)] * len(submits)


def refusal_when_stopping(submit: PendingSubmit) -> Refused:
    """Return the refusal of a submit that is not sent any more."""
    return _refused(submit, 503, "the plugin is stopping")


def _refused(submit: PendingSubmit, status: int, reason: str) -> Refused:
    return Refused(status, f"nothing was submitted: pool {submit.pool}: {reason}")


def _rejection(submit: PendingSubmit, refusal: Refusal) -> Refused:
    pool, reason = submit.pool, refusal.message
    if refusal.code == messages.DELETED:
        return Deleted(submit.job.pod)
    if refusal.code == messages.FORBIDDEN:
        return Refused(403, f"nothing was submitted: pool {pool} refuses the pod: {reason}")
    if refusal.code == messages.MALFORMED:
        return Refused(
            502,
            f"nothing was submitted: pool {pool} does not understand the plugin ({reason}); its "
            "submitter may be of another version: tell its admin",
        )
    return _refused(submit, 503, reason)


def _timed_out(submit: PendingSubmit) -> Refused:
    reason = (
        f"{submit.error}, waited {submit.timeout_s:.0f} s; choose another pool, or ask the "
        "pool's admin"
    )
    return _refused(submit, 504, reason)
