"""Connections to NATS: one for each source of pools that some MasterQueue wants."""

from __future__ import annotations

import asyncio
import logging
import urllib.parse
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple

from kueue_nats.spec.errors import SpecError
from kueue_nats.spec.masterqueue import NatsSource
from kueue_nats.spec.settings import PROGRAM
from templates.nats.connection import Link
from templates.nats.options import LinkSettings
from templates.nats.requests import LinkError
from templates.nats.subjects import ANY, HELLO, LARGEST_RESOURCES, RESOURCES, subject
from templates.program.settings import Nats, link_settings
from templates.protocol.publications import Resources, read_resources

logger = logging.getLogger(__name__)

SCHEMES = ("nats", "tls", "ws", "wss")

OnPublication = Callable[[NatsSource, Resources], None]


class _Connection(NamedTuple):
    settings: LinkSettings
    link: Link


class Listener:
    """All connections; only for the thread of the asyncio loop."""

    def __init__(self, on_publication: OnPublication) -> None:
        self._on_publication = on_publication
        self._connections: dict[NatsSource, _Connection] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def set_sources(self, sources: Mapping[NatsSource, LinkSettings]) -> None:
        """Connect to sources that are new, disconnect from those that nobody wants any more."""
        for source, connection in [*self._connections.items()]:
            if sources.get(source) != connection.settings:
                self._close(self._connections.pop(source).link)
        for source, settings in sources.items():
            if source not in self._connections:
                link = self._link(source, settings)
                self._connections[source] = _Connection(settings, link)
                await link.start()

    async def stop(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            self._close(connection.link)
        self._connections = {}
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def connected(self, timeout_s: float) -> bool:
        """Wait until every source is connected."""
        links = [connection.link for connection in self._connections.values()]
        return all(await asyncio.gather(*(link.connected(timeout_s) for link in links)))

    def errors(self) -> dict[NatsSource, str]:
        """Return why sources cannot be heard; an empty text for one that can."""
        return {source: one.link.error for source, one in self._connections.items()}

    # --- one source -----------------------------------------------------------------------------

    def _link(self, source: NatsSource, settings: LinkSettings) -> Link:
        async def connected() -> None:
            await self._hello(source, link)

        def hear(pool: str, message: Mapping[str, Any]) -> None:
            self._on_publication(source, read_resources(message, pool))

        link = Link(settings, _root(source), connected)
        link.subscribe_to_publications(f"{source.subject}.{ANY}", hear, LARGEST_RESOURCES)
        return link

    async def _hello(self, source: NatsSource, link: Link) -> None:
        """Ask all submitters of a source to publish what they have."""
        if not source.subject.endswith(f".{RESOURCES}"):
            return  # of a subject that is not ours nobody knows where hello is said
        try:
            await link.publish(subject(_root(source), HELLO), {})
        except LinkError as error:
            logger.info("cannot say hello: %s", error)  # it is said at the next connection

    def _close(self, link: Link) -> None:
        task = asyncio.create_task(link.stop())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def connection_settings(source: NatsSource, secret: str, own: Nats) -> LinkSettings:
    """Return how to connect to a source, whose Secret holds URLs, or a password, or nothing."""
    field = "natsFlavor.natsConnector"
    if not source.connector and "://" not in secret:
        if source.secret is not None:
            raise SpecError(field, "is empty, and the Secret holds no URL")
        if not own.servers:
            raise SpecError(field, "is empty, and the operator has no connection (nats.servers)")
        return link_settings(own, PROGRAM)
    text = secret if "://" in secret else source.connector
    urls = [_split(part.strip(), field) for part in text.split(",") if part.strip()]
    users = [url for url in urls if url.username]
    if secret and "://" not in secret and not users:
        raise SpecError(field, "the Secret holds a password, and no user is named: nats://USER@...")
    user = urllib.parse.unquote(users[0].username or "") if users else ""
    password = urllib.parse.unquote(users[0].password or "") if users else ""
    return LinkSettings(
        servers=tuple(_bare(url) for url in urls),
        name=PROGRAM,
        user=user,
        password=secret if secret and "://" not in secret else password,
        ca_file=own.ca_file,
    )


def _split(url: str, field: str) -> urllib.parse.SplitResult:
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port
    except ValueError:
        port, parts = None, urllib.parse.urlsplit("")
    # Behind the server there is nothing, unless a password has a slash in it: it is not repeated.
    rest = parts._replace(scheme="", netloc="").geturl()
    if not parts.hostname or port == 0 or parts.scheme not in SCHEMES or "@" in rest:
        raise SpecError(field, "is no URL of a NATS server (in a password, write / as %2F)")
    return parts


def _bare(url: urllib.parse.SplitResult) -> str:
    return url._replace(netloc=url.netloc.rpartition("@")[2]).geturl()


def _root(source: NatsSource) -> str:
    return source.subject.rpartition(".")[0] or source.subject
