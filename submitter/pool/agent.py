"""One pool on NATS: receives requests, checks them, answers them, and publishes states.

A request that is refused is answered with the reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from typing import Any, Callable, Union

from submitter.common.errors import Forbidden
from submitter.config import policy
from submitter.jobs.context import PoolContext
from submitter.jobs.lifecycle import JobLifecycle
from submitter.pool.group_commit import GroupCommit
from submitter.pool.incoming import RequestRefused, read_message
from submitter.pool.log_server import LogServer
from submitter.pool.publisher import PoolPublisher
from submitter.store.journal import JOURNALED, Outcome, Tombstone
from templates.common.errors import WireError, one_line
from templates.job.model import Job
from templates.nats import codec, subjects
from templates.nats.connection import Link, Request
from templates.protocol import messages
from templates.protocol.messages import (
    CANCELLING,
    FORBIDDEN,
    GONE,
    MALFORMED,
    UNAVAILABLE,
    Refusal,
)

logger = logging.getLogger(__name__)

Handler = Callable[[str, Mapping[str, Any]], Awaitable[Union[bytes, Mapping[str, Any]]]]

DRAINING = Refusal(UNAVAILABLE, "the site's submitter is about to restart", True)


class Agent:
    """The requests and publications of one pool, from ``start`` to ``stop``."""

    def __init__(
        self, context: PoolContext, link: Link, root: str, on_shutdown: Callable[[], None]
    ) -> None:
        self.pool = context.pool.name
        self.lifecycle = JobLifecycle(context)
        self.publisher = PoolPublisher(context, link, root)
        self._context, self._link = context, link
        self._on_shutdown = on_shutdown
        self._creates: GroupCommit[Job, Outcome] = GroupCommit(context.journal.store)
        self._deletes = GroupCommit(context.journal.bury)
        self._logs = LogServer(context, link)
        self._subscribe(root)

    def _subscribe(self, root: str) -> None:
        handlers = {
            subjects.CREATE: self._create,
            subjects.DELETE: self._delete,
            subjects.LOGS: self._log,
            subjects.QUERY: self._query,
            subjects.SHUTDOWN: self._shutdown,
            subjects.HELLO: self._hello,
        }
        for row in subjects.subscribed_by(subjects.SITE):
            if row.kind in handlers:  # parts are subscribed to one by one
                subject = subjects.subject(root, row.kind, self.pool, subjects.ANY)
                queue = subjects.queue_group(row, self.pool)
                self._link.subscribe(subject, handlers[row.kind], queue)

    async def start(self) -> None:
        """Load the jobs, and begin to publish; raise ``OSError`` if they cannot be read."""
        await self.lifecycle.start()
        await self.publisher.start()

    async def stop(self) -> None:
        """Finish pending requests, publish the last changes; jobs go on."""
        self.publisher.drain()
        await self._creates.drain()
        await self._deletes.drain()
        await self.lifecycle.stop()
        await self.publisher.stop()
        await asyncio.to_thread(self._context.journal.close)

    # --- requests with a reply ------------------------------------------------------------------

    async def _create(self, request: Request) -> None:
        await self._answer(request, self._accept_jobs)

    async def _accept_jobs(self, _: str, message: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.publisher.draining:
            raise RequestRefused(DRAINING)
        checked = [self._check_job(entry) for entry in messages.read_create(message)]
        jobs = [entry for entry in checked if isinstance(entry, Job)]
        outcomes = iter(await self._creates.put(jobs))
        results: list[Outcome] = []
        for entry in checked:
            answer = next(outcomes) if isinstance(entry, Job) else entry
            if isinstance(entry, Job) and answer == JOURNALED:
                self.lifecycle.accept(entry)
            elif isinstance(answer, Refusal):
                logger.info("pool=%s: a job is refused: %s", self.pool, answer.message)
            results.append(answer)
        return messages.write_outcomes(results)

    def _check_job(self, entry: Union[Job, WireError]) -> Union[Job, Refusal]:
        """Return the job, or the refusal of one that is malformed or not allowed here."""
        if isinstance(entry, WireError):
            return _refusal(entry)
        if self._context.table.get(entry.name) is None:  # a known job is not checked again
            try:
                policy.check(entry, self._context.pool)
                self._context.backend.check(entry)
            except Forbidden as error:
                return _refusal(error)
        return entry

    async def _delete(self, request: Request) -> None:
        await self._answer(request, self._delete_job)

    async def _delete_job(self, job_name: str, message: Mapping[str, Any]) -> Mapping[str, Any]:
        deletion = messages.read_delete(message)
        if deletion.name != job_name:
            raise WireError("delete.name", "is not that of the subject")
        (outcome,) = await self._deletes.put([deletion])
        if isinstance(outcome, Refusal):
            raise RequestRefused(outcome)
        is_known = self.lifecycle.mark_deleted(deletion.name, Tombstone(0, deletion.grace_period_s))
        logger.info("pool=%s job=%s: deleted", self.pool, deletion.name)
        return {"state": CANCELLING if outcome or is_known else GONE}

    async def _query(self, request: Request) -> None:
        await self._answer(request, self._list_states)

    async def _list_states(self, _: str, message: Mapping[str, Any]) -> bytes:
        return self.publisher.answer_query(messages.read_query(message))

    async def _answer(self, request: Request, handler: Handler) -> None:
        """Answer with what the handler returns, or with the reason why it refused."""
        item = request.subject.rpartition(".")[2]
        try:
            answer = await handler(item, await read_message(request, self.pool))
        except (WireError, Forbidden, RequestRefused) as error:
            refusal = _refusal(error)
            logger.info("pool=%s %s: refused: %s", self.pool, request.subject, refusal.message)
            answer = messages.write_refusal(refusal)
        raw = answer if isinstance(answer, bytes) else codec.encode(answer)
        await request.answer_raw(self.pool, raw)

    # --- the others ---------------------------------------------------------------------------

    async def _log(self, request: Request) -> None:
        await self._logs.serve(self.pool, request)

    async def _hello(self, _: Request) -> None:
        """Publish everything, whatever the message holds."""
        await self.publisher.publish_all()

    async def _shutdown(self, request: Request) -> None:
        await read_message(request, self.pool)  # raises for anything but a message of ours
        logger.info("pool=%s: was told to shut down", self.pool)
        self.publisher.drain()
        if request.reply:
            await request.answer(self.pool, {"state": "draining"})
        self._on_shutdown()


def _refusal(error: Union[WireError, Forbidden, RequestRefused]) -> Refusal:
    if isinstance(error, RequestRefused):
        return error.refusal
    code = MALFORMED if isinstance(error, WireError) else FORBIDDEN
    return Refusal(code, one_line(str(error)), False)
