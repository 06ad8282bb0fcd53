"""How NATS is reached, and what is heard there: on the real server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kueue_nats.pools.listener import Listener, connection_settings
from kueue_nats.spec.errors import SpecError
from kueue_nats.spec.masterqueue import NatsSource, SecretRef
from kueue_nats.spec.settings import OwnNats
from scripts.lib.interlink import free_port
from templates.nats.connection import Link, Request
from templates.nats.options import LinkSettings
from templates.protocol import publications
from templates.protocol.publications import Resources
from tests.support.nats_server import NatsServer
from tests.unit.submitter.rig import eventually

OWN = OwnNats(servers=("nats://own:4222",), ca_file="/ca.pem")
REF = SecretRef("name", "key")


def source(connector: str = "", *, secret: bool = False) -> NatsSource:
    return NatsSource(connector, REF if secret else None, "interlink.resources")


@pytest.mark.parametrize(
    ("connector", "secret", "servers", "user", "password"),
    [
        ("nats://user:password@n:4222", "", ("nats://n:4222",), "user", "password"),
        ("nats://u:p%2Fw%40x@n", "", ("nats://n",), "u", "p/w@x"),
        ("wss://n", "", ("wss://n",), "", ""),
        ("nats://u:p@a,tls://b:1", "", ("nats://a", "tls://b:1"), "u", "p"),
        ("nats://u@n", "pw", ("nats://n",), "u", "pw"),
        ("nats://u:old@n", "new", ("nats://n",), "u", "new"),
        ("", "nats://u:p@n", ("nats://n",), "u", "p"),
        ("nats://other", "nats://u:p@n, ws://m", ("nats://n", "ws://m"), "u", "p"),
        ("nats://[::1]:4222", "", ("nats://[::1]:4222",), "", ""),
    ],
)
def test_a_connector_and_its_secret_say_where_and_as_whom(
    connector: str, secret: str, servers: tuple[str, ...], user: str, password: str
) -> None:
    found = connection_settings(source(connector, secret=bool(secret)), secret, OWN)
    assert (found.servers, found.user, found.password) == (servers, user, password)
    assert found.ca_file == "/ca.pem"


def test_without_a_connector_it_is_the_operators_own() -> None:
    assert connection_settings(source(), "", OWN).servers == ("nats://own:4222",)


@pytest.mark.parametrize(
    ("connector", "secret", "words"),
    [
        ("", "", "is empty, and the operator has no connection (nats.servers)"),
        ("", "pw", "is empty, and the Secret holds no URL"),
        ("nats://", "", "is no URL of a NATS server"),
        ("nats://host:port", "", "is no URL of a NATS server"),
        ("nats://u:pa/ss@host", "", "in a password, write / as %2F"),
        ("nats://u:pa#ss@host", "", "is no URL of a NATS server"),
        ("", "http://u:hidden@host", "is no URL of a NATS server"),
        ("nats://host", "pw", "the Secret holds a password, and no user is named"),
    ],
)
def test_what_cannot_be_reached_is_said_without_its_password(
    connector: str, secret: str, words: str
) -> None:
    with pytest.raises(SpecError) as caught:
        connection_settings(source(connector, secret=bool(secret)), secret, OwnNats())
    assert words in str(caught.value)
    assert str(caught.value).startswith("natsFlavor.natsConnector: ")
    assert "hidden" not in str(caught.value) and "ss@" not in str(caught.value)


# --- on the server --------------------------------------------------------------------------------


class Server(NatsServer):
    """One that tells who is connected."""

    def __init__(self, folder: Path) -> None:
        self.monitor = free_port()
        super().__init__(folder, http=f"127.0.0.1:{self.monitor}")

    def names(self) -> list[str]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.monitor}/connz", timeout=10) as page:
            return [one["name"] for one in json.load(page)["connections"]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    found = Server(tmp_path_factory.mktemp("nats"))
    found.start()
    yield found
    found.stop()


@contextlib.asynccontextmanager
async def site(server: Server, pool: str, root: str = "interlink") -> AsyncIterator[list[Any]]:
    """A site that answers each hello; the hellos that it has heard."""
    heard: list[Any] = []
    link = Link(LinkSettings((server.url,), name="site"), root)

    async def hello(request: Request) -> None:
        heard.append(await request.message(pool))
        said = publications.write_resources(Resources(pool, {"cpu": "4"}))
        await link.publish(f"{root}.resources.{pool}", said, compress=False)

    link.subscribe(f"{root}.hello", hello)
    await link.start()
    assert await link.connected(20)
    try:
        yield heard
    finally:
        await link.stop()


async def soon(what: Any) -> None:
    """Wait for it without holding up the loop."""
    await asyncio.to_thread(eventually, what)


def wanted(server: Server, name: str = "ear") -> LinkSettings:
    return LinkSettings((server.url,), name=name)


def test_pools_are_heard_after_a_hello_at_each_connection(server: Server) -> None:
    async def run() -> None:
        told: list[tuple[NatsSource, str]] = []
        listener = Listener(lambda where, said: told.append((where, said.pool)))
        async with site(server, "p") as hellos:
            await listener.set_sources({source("a"): wanted(server)})
            assert await listener.connected(20)
            await soon(lambda: told == [(source("a"), "p")])
            assert listener.errors() == {source("a"): ""}
            await listener.set_sources({source("a"): wanted(server)})  # as it is
            await listener.set_sources({source("a"): wanted(server, "other")})
            await soon(lambda: len(hellos) == 2)
            assert [set(hello) for hello in hellos] == [{"v"}, {"v"}]
            await listener.stop()

    asyncio.run(run())


def test_a_source_has_one_connection_which_goes_when_nobody_wants_it(server: Server) -> None:
    async def run() -> None:
        listener = Listener(lambda where, said: None)
        both = {source("a"): wanted(server), source("b"): wanted(server)}
        for _ in range(3):
            await listener.set_sources(both)
        assert await listener.connected(20)
        assert server.names() == ["ear", "ear"]
        await listener.set_sources({source("b"): wanted(server)})
        await soon(lambda: server.names() == ["ear"])
        await listener.stop()
        await soon(lambda: server.names() == [])

    asyncio.run(run())


def test_other_credentials_are_another_connection(server: Server) -> None:
    async def run() -> None:
        listener = Listener(lambda where, said: None)
        closed = LinkSettings((f"nats://127.0.0.1:{free_port()}",), name="ear")
        await listener.set_sources({source("a"): closed})
        assert not await listener.connected(0.2)
        await soon(lambda: listener.errors()[source("a")])
        await listener.set_sources({source("a"): wanted(server)})
        assert await listener.connected(20)
        assert listener.errors() == {source("a"): ""}
        await listener.stop()

    asyncio.run(run())


def test_what_cannot_be_understood_is_left_out(server: Server) -> None:
    async def run() -> None:
        told: list[str] = []
        listener = Listener(lambda where, said: told.append(said.pool))
        async with site(server, "good"):
            link = Link(LinkSettings((server.url,), name="noise"), "interlink")
            await link.start()
            assert await link.connected(20)
            await listener.set_sources({source("a"): wanted(server)})
            assert await listener.connected(20)
            await soon(lambda: told == ["good"])
            for raw in (b"", b"{", b"[]", b'{"v": 1, "quotas": {"cpu": "many"}}', b"\xff"):
                await link.publish_raw("interlink.resources.bad", raw)
            last = publications.write_resources(Resources("last", {"cpu": "1"}))
            await link.publish("interlink.resources.last", last, compress=False)
            await soon(lambda: "last" in told)
            assert told == ["good", "last"]
            await link.stop()
        await listener.stop()

    asyncio.run(run())


def test_a_subject_of_somebody_elses_is_heard_and_not_spoken_to(server: Server) -> None:
    async def run() -> None:
        told: list[str] = []
        listener = Listener(lambda where, said: told.append(said.pool))
        async with site(server, "p", root="foreign") as hellos:
            other = NatsSource("a", None, "foreign.offers")
            await listener.set_sources({other: wanted(server)})
            assert await listener.connected(20)
            link = Link(LinkSettings((server.url,), name="upstream"), "foreign")
            await link.start()
            assert await link.connected(20)
            said = b'{"v": 1, "quotas": {"cpu": "8", "pods": 10}, "labels": ["k=v"], "taints": []}'
            await link.publish_raw("foreign.offers.theirs", said)
            await soon(lambda: told == ["theirs"])
            assert hellos == []
            await link.stop()
        await listener.stop()

    asyncio.run(run())
