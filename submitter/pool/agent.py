"""One pool on NATS: hears requests, answers them, and tells how its jobs are doing.

Everything that comes in is checked here; what is refused is answered with the reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from typing import Any, Callable, Union

from submitter.common.errors import Forbidden
from submitter.config import policy
from submitter.jobs.context import Site
from submitter.jobs.lifecycle import Keeper
from submitter.pool.group_commit import Intake
from submitter.pool.incoming import Refused, received
from submitter.pool.log_server import LogServer
from submitter.pool.publisher import Announcer
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

Work = Callable[[str, Mapping[str, Any]], Awaitable[Union[bytes, Mapping[str, Any]]]]

DRAINING = Refusal(UNAVAILABLE, "the site's submitter is about to restart", True)


class Agent:
    """Speaks for one pool, from ``start`` to ``stop``."""

    def __init__(self, site: Site, link: Link, root: str, on_shutdown: Callable[[], None]) -> None:
        self.pool = site.pool.name
        self.keeper = Keeper(site)
        self.announcer = Announcer(site, link, root)
        self._site, self._link = site, link
        self._on_shutdown = on_shutdown
        self._creates: Intake[Job, Outcome] = Intake(site.journal.store)
        self._deletes = Intake(site.journal.bury)
        self._logs = LogServer(site, link)
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
        for row in subjects.heard_by(subjects.SITE):
            if row.kind in handlers:  # parts are subscribed to one by one
                where = subjects.subject(root, row.kind, self.pool, subjects.ANY)
                queue = subjects.queue_group(row, self.pool)
                self._link.subscribe(where, handlers[row.kind], queue)

    async def start(self) -> None:
        """Learn what is there, and begin to publish; raises ``OSError``."""
        await self.keeper.start()
        await self.announcer.start()

    async def stop(self) -> None:
        """Finish what is in hand, publish the last changes; jobs go on."""
        self.announcer.drain()
        await self._creates.drain()
        await self._deletes.drain()
        await self.keeper.stop()
        await self.announcer.stop()
        await asyncio.to_thread(self._site.journal.close)

    # --- requests that change or tell something -------------------------------------------------

    async def _create(self, request: Request) -> None:
        await self._answer(request, self._created)

    async def _created(self, _: str, message: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.announcer.draining:
            raise Refused(DRAINING)
        judged = [self._judged(entry) for entry in messages.read_create(message)]
        jobs = [entry for entry in judged if isinstance(entry, Job)]
        outcomes = iter(await self._creates.put(jobs))
        answers: list[Outcome] = []
        for entry in judged:
            answer = next(outcomes) if isinstance(entry, Job) else entry
            if isinstance(entry, Job) and answer == JOURNALED:
                self.keeper.take(entry)
            elif isinstance(answer, Refusal):
                logger.info("pool=%s: a job is refused: %s", self.pool, answer.message)
            answers.append(answer)
        return messages.outcomes(answers)

    def _judged(self, entry: Union[Job, WireError]) -> Union[Job, Refusal]:
        """The job, unless it was sent wrong or the site does not run such a one."""
        if isinstance(entry, WireError):
            return _refusal(entry)
        if self._site.table.get(entry.name) is None:  # a known job is not judged again
            try:
                policy.check(entry, self._site.pool.policy)
                self._site.backend.check(entry)
            except Forbidden as error:
                return _refusal(error)
        return entry

    async def _delete(self, request: Request) -> None:
        await self._answer(request, self._deleted)

    async def _deleted(self, job_name: str, message: Mapping[str, Any]) -> Mapping[str, Any]:
        wish = messages.read_delete(message)
        if wish.job != job_name:
            raise WireError("delete.name", "is not that of the subject")
        (outcome,) = await self._deletes.put([wish])
        if isinstance(outcome, Refusal):
            raise Refused(outcome)
        known = self.keeper.bury(wish.job, Tombstone(0, wish.grace_period_s))
        logger.info("pool=%s job=%s: deleted", self.pool, wish.job)
        return {"state": CANCELLING if outcome or known else GONE}

    async def _query(self, request: Request) -> None:
        await self._answer(request, self._queried)

    async def _queried(self, _: str, message: Mapping[str, Any]) -> bytes:
        return self.announcer.page(messages.read_query(message))

    async def _answer(self, request: Request, work: Work) -> None:
        """Answer with what the work returns, or with why it was refused."""
        item = request.subject.rpartition(".")[2]
        try:
            answer = await work(item, await received(request, self.pool))
        except (WireError, Forbidden, Refused) as error:
            refusal = _refusal(error)
            logger.info("pool=%s %s: refused: %s", self.pool, request.subject, refusal.message)
            answer = messages.refusal(refusal)
        raw = answer if isinstance(answer, bytes) else codec.encode(answer)
        await request.answer_raw(self.pool, raw)

    # --- the others ---------------------------------------------------------------------------

    async def _log(self, request: Request) -> None:
        await self._logs.serve(self.pool, request)

    async def _hello(self, _: Request) -> None:
        """Publish everything, whatever the message holds."""
        await self.announcer.introduce()

    async def _shutdown(self, request: Request) -> None:
        await received(request, self.pool)  # what is no message of ours ends nobody
        logger.info("pool=%s: was told to shut down", self.pool)
        self.announcer.drain()
        if request.reply:
            await request.answer(self.pool, {"state": "draining"})
        self._on_shutdown()


def _refusal(error: Union[WireError, Forbidden, Refused]) -> Refusal:
    if isinstance(error, Refused):
        return error.refusal
    code = MALFORMED if isinstance(error, WireError) else FORBIDDEN
    return Refusal(code, one_line(str(error)), False)
