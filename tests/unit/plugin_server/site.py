"""The site's side of the protocol, as small as it can be: what a test tells it, it says.

It answers with the message functions that the real submitter uses, over a real connection.
"""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from plugin_server.nats.bridge import Bridge
from submitter.jobs.job_status import SchedulerView, status_of
from templates.job.model import Job
from templates.job.records import JobState
from templates.job.status import ENDED, JobIdentity, JobStatus
from templates.nats.connection import Link, Request
from templates.nats.options import LinkSettings
from templates.nats.subjects import (
    ANY,
    CONFIG,
    CREATE,
    DELETE,
    HELLO,
    LOGS,
    QUERY,
    RESOURCES,
    STATUS,
    subject,
)
from templates.protocol import messages, publications
from templates.protocol.messages import LOG_DATA, LogEnd, LogRequest, Refusal
from templates.protocol.publications import Resources, StatusUpdate, dump_status
from templates.site.build_config import BuildConfig

ROOT = "interlink"


class Site:
    """One submitter of one pool."""

    def __init__(self, url: str, pool: str = "slurm-a", **quotas: str) -> None:
        self.pool = pool
        self.instance = uuid.uuid4().hex
        self.quotas = quotas or {"cpu": "8", "memory": "16Gi", "pods": "100"}
        self.config = BuildConfig()
        self.trouble = ""
        self.number = 0
        self.page = 500
        self.jobs: dict[str, JobStatus] = {}
        self.created: list[Job] = []
        self.together: list[int] = []  # jobs in each create message
        self.deleted: list[messages.Delete] = []
        self.queries: list[messages.Query] = []
        self.log_requests: list[LogRequest] = []
        self.logs: dict[tuple[str, str], bytes] = {}
        self.refuse: Callable[[str, Any], Refusal | None] = lambda kind, message: None
        self.mute: set[str] = set()  # kinds of requests that are heard and not answered
        self.lose_log_messages = 0
        self._bridge = Bridge()
        self._lock = threading.Lock()
        self._link = Link(LinkSettings(servers=(url,)), ROOT, self.announce)

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> Site:
        self._bridge.start()
        for kind, handle in (
            (CREATE, self._create),
            (DELETE, self._delete),
            (QUERY, self._query),
            (LOGS, self._logs),
        ):
            where = subject(ROOT, kind, self.pool, ANY)
            self._link.subscribe(where, handle, queue=self.pool)
        self._link.subscribe(subject(ROOT, HELLO), self._hello)
        self._bridge.call(self._link.start(), 5)
        assert self._bridge.call(self._link.connected(10), 15)
        return self

    def stop(self) -> None:
        self._bridge.call(self._link.stop(), 10)
        self._bridge.stop()

    def __enter__(self) -> Site:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- publishing -----------------------------------------------------------------------------

    async def announce(self) -> None:
        config = publications.write_config(self.pool, self.config)
        await self._link.publish(subject(ROOT, CONFIG, self.pool), config)
        offer = publications.write_resources(
            Resources(self.pool, self.quotas, trouble=self.trouble)
        )
        await self._link.publish(subject(ROOT, RESOURCES, self.pool), offer, compress=False)
        await self._publish((), ())

    async def _hello(self, request: Request) -> None:
        await self.announce()

    def announce_now(self) -> None:
        self._bridge.call(self.announce(), 10)

    def say(self, *states: JobStatus, gone: Iterable[str] = (), lose: bool = False) -> None:
        """Publish states, and have them from now on; with ``lose``, nobody hears it."""
        for status in states:
            self.jobs[status.job] = status
        gone = tuple(gone)
        for job in gone:
            self.jobs.pop(job, None)
        self._bridge.call(self._publish(states, gone, lose), 10)

    def heartbeat(self) -> None:
        self._bridge.call(self._publish((), ()), 10)

    def publish_raw(self, kind: str, raw: bytes) -> None:
        where = subject(ROOT, kind, self.pool)
        self._bridge.call(self._link.publish_raw(where, raw), 10)

    async def _publish(
        self, states: Iterable[JobStatus], gone: tuple[str, ...], lose: bool = False
    ) -> None:
        states = tuple(states)
        with self._lock:
            if states or gone:
                self.number += 1
            raw = self._page(states, gone, "")
        if not lose:
            await self._link.publish_raw(subject(ROOT, STATUS, self.pool), raw)

    def _page(self, states: tuple[JobStatus, ...], gone: tuple[str, ...], cursor: str) -> bytes:
        header = StatusUpdate(
            self.pool, self.instance, self.number, len(self.jobs), (), gone, cursor
        )
        return publications.dump_status_update(header, [dump_status(status) for status in states])

    # --- answering ------------------------------------------------------------------------------

    async def _refused(self, kind: str, request: Request, message: Any) -> bool:
        refusal = self.refuse(kind, message)
        if refusal is not None:
            await request.answer(self.pool, messages.write_refusal(refusal))
        return refusal is not None or kind in self.mute

    async def _create(self, request: Request) -> None:
        outcomes = []
        jobs = messages.read_create(await request.message(self.pool))
        self.together.append(len(jobs))
        for job in jobs:
            assert isinstance(job, Job), job
            outcomes.append(self.refuse(CREATE, job) or self._take(job))
        if CREATE not in self.mute:
            await request.answer(self.pool, messages.write_outcomes(outcomes))

    def _take(self, job: Job) -> str:
        if CREATE in self.mute:
            return ""
        known = job.name in self.jobs
        self.created.append(job)
        if not known:
            self.jobs[job.name] = accepted(job)
        return "known" if known else "journaled"

    async def _delete(self, request: Request) -> None:
        delete = messages.read_delete(await request.message(self.pool))
        if await self._refused(DELETE, request, delete):
            return
        self.deleted.append(delete)
        await request.answer(self.pool, {"state": "cancelling"})

    async def _query(self, request: Request) -> None:
        query = messages.read_query(await request.message(self.pool))
        self.queries.append(query)
        if await self._refused(QUERY, request, query):
            return
        names = sorted(self.jobs) if query.jobs is None else list(query.jobs)
        start = int(query.cursor or "0")
        names, rest = names[start : start + self.page], names[start + self.page :]
        found = tuple(self.jobs[name] for name in names if name in self.jobs)
        gone = tuple(name for name in names if name not in self.jobs)
        cursor = str(start + self.page) if rest else ""
        await request.answer_raw(self.pool, self._page(found, gone, cursor))

    async def _logs(self, request: Request) -> None:
        asked = messages.read_log_request(await request.message(self.pool))
        self.log_requests.append(asked)
        if await self._refused(LOGS, request, asked):
            return
        key = (asked.job, asked.container)
        start = int(asked.cursor or "0")
        end = time.monotonic() + asked.wait_s
        while asked.follow and len(self.logs.get(key, b"")) <= start and not self._over(asked.job):
            if time.monotonic() > end:
                break
            await asyncio.sleep(0.02)
        content = self.logs.get(key, b"")[start : start + asked.window_bytes]
        for offset in range(0, len(content), 65536):
            if self.lose_log_messages:
                self.lose_log_messages -= 1
                continue
            piece = content[offset : offset + 65536]
            await self._link.publish_raw(request.reply, LOG_DATA + piece)
        at_end = start + len(content) >= len(self.logs.get(key, b""))
        over = at_end and (not asked.follow or self._over(asked.job))
        last = LogEnd(str(start + len(content)), len(content), over)
        await request.answer(self.pool, messages.write_log_end(last))

    def _over(self, job: str) -> bool:
        return job not in self.jobs or self.jobs[job].phase == ENDED


def accepted(job: Job) -> JobStatus:
    return status_of(identity(job), SchedulerView(), JobState(), 0)


def identity(job: Job) -> JobIdentity:
    return JobIdentity(job.name, job.uid, job.namespace, job.pod, job.containers, job.origin)
