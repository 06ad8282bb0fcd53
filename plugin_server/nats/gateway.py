"""Requests and subscriptions on NATS: the only module with subjects and the connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import Any, Callable, Optional

from templates.job.model import Job
from templates.nats import subjects
from templates.nats.connection import Link
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

Handler = Callable[[Any], None]
NextMessage = Callable[[float], Awaitable[bytes]]


class Gateway:
    """Requests to submitters, and their publications; lives in the loop's thread."""

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
        self._link_task: Optional[asyncio.Task[None]] = None
        self._on_connected = on_connected

    async def start(self) -> None:
        """Start to connect; return at once."""
        link = Link(self._settings, self._root, self._connected)
        self._subscribe(link, CONFIG, read_config, self._on_config)
        self._subscribe(link, RESOURCES, read_resources, self._on_resources)
        self._subscribe(link, STATUS, read_status_update, self._on_statuses)
        self._link = link
        await link.start()
        self._link_task = asyncio.ensure_future(link.ended())

    async def stop(self) -> None:
        """Close the connection."""
        if self._link is not None:
            await self._link.stop()

    async def _connected(self) -> None:
        self._on_connected()
        await self.hello()

    def _subscribe(
        self, link: Link, kind: str, read: Callable[[Mapping[str, Any], str], Any], handler: Handler
    ) -> None:
        where = subjects.subject(self._root, kind, ANY)
        largest = subjects.ROWS[kind].largest

        def handle(pool: str, message: Mapping[str, Any]) -> None:
            handler(read(message, pool))

        link.subscribe_to_publications(where, handle, largest)

    # --- the connection -----------------------------------------------------------------------

    @property
    def link(self) -> Link:
        """Return the connection; raises ``NotConnected`` before ``start``."""
        if self._link is None:
            raise NotConnected("the plugin is starting")
        return self._link

    @property
    def is_connected(self) -> bool:
        """Return whether there is a connection, as far as is known."""
        return self._link is not None and self._link.is_connected

    @property
    def is_link_running(self) -> bool:
        """Return whether the connection is still restored when it breaks."""
        return self._link_task is not None and not self._link_task.done()

    @property
    def silent_s(self) -> float:
        """Return the seconds since the server last responded."""
        return self._link.silent_s if self._link is not None else float("inf")

    @property
    def connection_error(self) -> str:
        """Return why there is no connection; empty if there is one."""
        return self._link.error if self._link is not None else "the plugin is starting"

    # --- requests -----------------------------------------------------------------------------

    async def hello(self) -> None:
        """Request every submitter to publish its state."""
        await self.link.publish(subjects.subject(self._root, HELLO), {})

    async def create(
        self, pool: str, jobs: Sequence[Job], timeout_s: float
    ) -> list[Optional[Refusal]]:
        """Submit jobs; return None for each that is journaled at the site."""
        subject = subjects.subject(self._root, CREATE, pool)
        reply = await self.link.request(pool, subject, messages.write_create(jobs), timeout_s)
        return messages.read_outcomes(reply, len(jobs))

    async def delete(self, pool: str, delete: Delete, timeout_s: float) -> Optional[Refusal]:
        """Request a delete; return None once the site has accepted responsibility."""
        subject = subjects.subject(self._root, DELETE, pool, delete.name)
        reply = await self.link.request(pool, subject, messages.write_delete(delete), timeout_s)
        return messages.read_refusal(reply)

    async def query(self, pool: str, query: Query, timeout_s: float) -> StatusUpdate | Refusal:
        """Return a page of states."""
        subject = subjects.subject(self._root, QUERY, pool)

        def read(reply: Mapping[str, Any]) -> StatusUpdate | Refusal:
            return messages.read_refusal(reply) or read_status_update(reply, pool)

        message = messages.write_query(query)
        return await self.link.request_and_read(pool, subject, message, timeout_s, read)

    @contextlib.asynccontextmanager
    async def log_stream(
        self, largest: int, most_messages: int
    ) -> AsyncIterator[tuple[Callable[[str, LogRequest], Awaitable[None]], NextMessage]]:
        """Yield two functions: to request a window of a log, and to wait for its messages."""
        async with self.link.stream(largest, most_messages) as (inbox, next_message):

            async def ask(pool: str, request: LogRequest) -> None:
                subject = subjects.subject(self._root, LOGS, pool, request.job)
                await self.link.publish_request(subject, inbox, messages.write_log_request(request))

            yield ask, next_message
