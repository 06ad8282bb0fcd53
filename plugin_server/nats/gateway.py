"""What is said on NATS: the only module that names subjects, and knows the connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import Any, Callable, Optional

from templates.job.model import Job
from templates.nats import subjects
from templates.nats.connection import Link, Request
from templates.nats.options import LinkSettings
from templates.nats.requests import NotConnected
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
)
from templates.protocol import messages
from templates.protocol.messages import Delete, LogRequest, Query, Refusal
from templates.protocol.publications import (
    Config,
    Resources,
    StatusUpdate,
    read_config,
    read_resources,
    read_status_update,
)

Heard = Callable[[Any], None]
NextMessage = Callable[[float], Awaitable[bytes]]


class Gateway:
    """Requests to submitters, and what they publish; all of it in the loop's thread."""

    def __init__(
        self,
        settings: LinkSettings,
        root: str,
        on_config: Callable[[Config], None],
        on_resources: Callable[[Resources], None],
        on_statuses: Callable[[StatusUpdate], None],
        on_connected: Callable[[], object],
    ) -> None:
        self._root = root
        self._settings = settings
        self._on_config = on_config
        self._on_resources = on_resources
        self._on_statuses = on_statuses
        self._link: Optional[Link] = None
        self._keeper: Optional[asyncio.Task[None]] = None
        self._on_connected = on_connected

    async def start(self) -> None:
        """Begin to connect; returns at once."""
        link = Link(self._settings, self._root, self._connected)
        self._hear(link, CONFIG, read_config, self._on_config)
        self._hear(link, RESOURCES, read_resources, self._on_resources)
        self._hear(link, STATUS, read_status_update, self._on_statuses)
        self._link = link
        await link.start()
        self._keeper = asyncio.ensure_future(link.ended())

    async def stop(self) -> None:
        """Close the connection."""
        if self._link is not None:
            await self._link.stop()

    async def _connected(self) -> None:
        self._on_connected()
        await self.hello()

    def _hear(
        self, link: Link, kind: str, read: Callable[[Mapping[str, Any], str], Any], heard: Heard
    ) -> None:
        async def handle(request: Request) -> None:
            pool = subjects.parse(self._root, request.subject).pool
            heard(read(await request.message(pool), pool))

        link.subscribe(subjects.subject(self._root, kind, ANY), handle)

    # --- the connection -----------------------------------------------------------------------

    @property
    def link(self) -> Link:
        """The connection; raises ``NotConnected`` before ``start``."""
        if self._link is None:
            raise NotConnected("the plugin is starting")
        return self._link

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._link is not None and self._link.is_connected

    @property
    def is_kept(self) -> bool:
        """Whether the connection is still made again whenever it breaks."""
        return self._keeper is not None and not self._keeper.done()

    @property
    def silent_s(self) -> float:
        """Seconds since the server last answered."""
        return self._link.silent_s if self._link is not None else float("inf")

    @property
    def trouble(self) -> str:
        """Why there is no connection; empty when there is one."""
        return self._link.error if self._link is not None else "the plugin is starting"

    # --- speaking -----------------------------------------------------------------------------

    async def hello(self) -> None:
        """Ask every submitter to say what it has."""
        await self.link.publish(subjects.subject(self._root, HELLO), {})

    async def create(
        self, pool: str, jobs: Sequence[Job], timeout_s: float
    ) -> list[Optional[Refusal]]:
        """Have jobs run; None for each that is journaled at the site."""
        where = subjects.subject(self._root, CREATE, pool)
        answer = await self.link.request(pool, where, messages.write_create(jobs), timeout_s)
        return messages.read_outcomes(answer, len(jobs))

    async def delete(self, pool: str, delete: Delete, timeout_s: float) -> Optional[Refusal]:
        """Have a job ended; None when the site will see to it, whatever happens."""
        where = subjects.subject(self._root, DELETE, pool, delete.name)
        answer = await self.link.request(pool, where, messages.write_delete(delete), timeout_s)
        return messages.read_refusal(answer)

    async def query(self, pool: str, query: Query, timeout_s: float) -> StatusUpdate | Refusal:
        """A page of states."""
        where = subjects.subject(self._root, QUERY, pool)
        answer = await self.link.request(pool, where, messages.write_query(query), timeout_s)
        return messages.read_refusal(answer) or read_status_update(answer, pool)

    @contextlib.asynccontextmanager
    async def log_stream(
        self,
    ) -> AsyncIterator[tuple[Callable[[str, LogRequest], Awaitable[None]], NextMessage]]:
        """Two functions: one that asks for a window of a log, one that waits for its messages."""
        async with self.link.stream() as (inbox, next_message):

            async def ask(pool: str, request: LogRequest) -> None:
                where = subjects.subject(self._root, LOGS, pool, request.job)
                await self.link.publish_request(where, inbox, messages.write_log_request(request))

            yield ask, next_message
