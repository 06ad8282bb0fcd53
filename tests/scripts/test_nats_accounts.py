"""Accounts of nats-site on the real server: isolation without any permissions, and limits."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import nkeys
import pytest

from templates.nats.subjects import PLUGIN, ROLES
from tests.scripts.test_nats_site import HEARING, JOB, SAYING, raw
from tests.support.nats_users import Site

pytestmark = pytest.mark.security

MIB = 1024 * 1024
SUBSCRIPTIONS = 1_000_000
CONNECTIONS = 300
UNREAD_MIB = 600  # of requests that are taken and never read
PENDING_MIB = 4  # as max_pending, of which a connection costs twice as much at worst
CALM_MIB = 100  # more than this the server may not need for a site that asks for too much
VICTIMS = [
    "interlink.create.b",
    "interlink.status.b",
    "interlink.shutdown.b",
    "_INBOX_plugin.x.0",
    "_INBOX_beta.x.0",
    "_R_.abcdef.ghijkl",
    "$KV.tokens-beta.own",
    "$JS.API.STREAM.DELETE.KV_tokens-beta",
]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Users may do whatever their account lets them: nobody has permissions."""
    made = Site(tmp_path_factory.mktemp("nats"))
    made("add", "alpha", "a1", "a2")
    made("add", "beta", "b")
    for name in ("cluster", "alpha", "beta"):
        path = made.folder / "accounts" / f"{name}.conf"
        account = json.loads(f"{{{path.read_text()}}}")
        for user in account[name]["users"]:
            del user["permissions"]
        path.write_text(json.dumps(account)[1:-1])
    made.server.start()
    yield made
    made.server.stop()


def own_of_alpha(subject: str) -> bool:
    kind, pool = subject.split(".")[1:3]
    return kind in ("config", "resources", "status", "requestparts") and pool in ("a1", "a2")


def test_what_a_site_says_leaves_its_account_only_where_it_may(bare: Site) -> None:
    said = {*SAYING, *VICTIMS, *(s.replace("*", "x").replace(">", "x") for s, _ in HEARING)}
    said |= {f"interlink.{kind}.a1" for kind in ("config", "resources", "status")}
    said |= {"interlink.requestparts.a1.0"}

    async def attempt() -> None:
        async with contextlib.AsyncExitStack() as stack:
            alpha, beta, plugin = [
                await stack.enter_async_context(raw(bare, name))
                for name in ("alpha", "beta", PLUGIN)
            ]
            for other in (beta, plugin):
                await other.hear(">")
            for subject in sorted(said):
                for reply in ("", *VICTIMS):
                    await alpha.client.publish(subject, b"{}", reply=reply)
            await alpha.settle()
            for other in (beta, plugin):
                await other.settle()
            assert beta.heard == []
            assert [s for s in plugin.heard if not own_of_alpha(s)] == []
            assert {s.split(".")[1] for s in plugin.heard} == {
                *("config", "resources", "status", "requestparts")
            }

    asyncio.run(attempt())


def test_a_site_hears_only_what_is_meant_for_it(bare: Site) -> None:
    kinds = ("create", "query", "config", "resources", "status", "shutdown", "hello", "other")
    said = [f"interlink.{kind}.{pool}" for kind in kinds for pool in ("a1", "b", "nobody")]
    items = ("delete", "logs", "requestparts", "answerparts")
    said += [f"interlink.{kind}.{pool}.{JOB}" for kind in items for pool in ("a1", "b")]
    said += ["interlink.hello", *VICTIMS]

    async def attempt() -> None:
        async with contextlib.AsyncExitStack() as stack:
            alpha = await stack.enter_async_context(raw(bare, "alpha"))
            await alpha.hear(">")
            for name in (*ROLES, "beta"):
                other = await stack.enter_async_context(raw(bare, name))
                for subject in said:
                    await other.client.publish(subject, b"{}", reply="_INBOX_other.x")
                await other.settle()
            await alpha.settle()
            assert set(alpha.heard) == {
                "interlink.hello",
                "interlink.create.a1",
                "interlink.query.a1",
                f"interlink.delete.a1.{JOB}",
                f"interlink.logs.a1.{JOB}",
                f"interlink.answerparts.a1.{JOB}",
                "interlink.shutdown.a1",
            }

    asyncio.run(attempt())


# --- what one credential may cost -----------------------------------------------------------------


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    made("add", "alpha", "a1", "a2")
    made("add", "beta", "b")
    made.server.start()
    yield made
    made.server.stop()


def memory_mib(site: Site) -> float:
    status = Path(f"/proc/{site.server.pid}/status").read_text()
    (peak,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    return int(peak) / 1024


class Socket:
    """A connection to the server that speaks its protocol itself, and reads only when told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, site: Site, name: str) -> Socket:
        made = cls(*await asyncio.open_connection("127.0.0.1", site.server.port))
        nonce = json.loads((await made.reader.readline()).split(b" ", 1)[1])["nonce"]
        pair = nkeys.from_seed(bytearray(Path(site.seed_file(name)).read_bytes().strip()))
        signature = base64.urlsafe_b64encode(pair.sign(nonce.encode())).rstrip(b"=").decode()
        who = {"nkey": pair.public_key.decode(), "sig": signature, "verbose": False}
        made.writer.write(b"CONNECT %s\r\nPING\r\n" % json.dumps(who).encode())
        return made

    async def said(self, end: bytes) -> str:
        """What comes until the server says that, or closes."""
        heard = []
        with contextlib.suppress(OSError):
            while line := await self.reader.readline():
                heard.append(line)
                if line.startswith(end):
                    break
        return b"".join(heard).decode()

    async def is_in(self) -> bool:
        return "PONG" in await self.said(b"PONG")


@contextlib.asynccontextmanager
async def sockets(site: Site, name: str, count: int) -> AsyncIterator[list[Socket]]:
    made = [await Socket.open(site, name) for _ in range(count)]
    try:
        yield made
    finally:
        for socket in made:
            socket.writer.close()


async def works(site: Site, name: str) -> bool:
    async with sockets(site, name, 1) as (one,):
        return await one.is_in()


def test_a_million_subscriptions(site: Site) -> None:
    before = memory_mib(site)

    async def attempt() -> str:
        async with sockets(site, "alpha", 1) as (one,):
            assert await one.is_in()
            told = asyncio.ensure_future(one.said(b"PONG"))
            for start in range(0, SUBSCRIPTIONS, 10_000):
                numbers = range(start, start + 10_000)
                one.writer.write(b"".join(b"SUB _INBOX_alpha.%d %d\r\n" % (n, n) for n in numbers))
                await one.writer.drain()
            one.writer.write(b"PING\r\n")
            answer = await told
            assert await works(site, "beta")
        return answer

    told = asyncio.run(attempt())
    assert memory_mib(site) - before < CALM_MIB
    assert "maximum subscriptions exceeded" in told


def test_hundreds_of_connections(site: Site) -> None:
    before = memory_mib(site)

    async def attempt() -> int:
        async with sockets(site, "alpha", CONNECTIONS) as made:
            count = [await one.is_in() for one in made].count(True)
            for one in made:  # a payload that never ends, of each that is in
                one.writer.write(b"PUB interlink.status.a1 1000000\r\n" + bytes(999_000))
            await asyncio.gather(*(one.writer.drain() for one in made), return_exceptions=True)
            assert await works(site, "beta")
        return count

    assert asyncio.run(attempt()) == 8
    assert memory_mib(site) - before < CALM_MIB


def test_requests_that_are_never_read(site: Site) -> None:
    """They cost what may wait for each connection of the site, and not more."""
    site.server.stop()
    conf = site.folder / "nats-server.conf"
    conf.write_text(re.sub("max_pending: .*", f"max_pending: {PENDING_MIB}MB", conf.read_text()))
    site.server.start()
    before, count = memory_mib(site), 0
    payload = bytes(700_000)

    async def attempt() -> None:
        nonlocal count
        async with sockets(site, "alpha", CONNECTIONS) as made:
            for one in made:
                if await one.is_in():
                    count += 1
                    one.writer.write(b"SUB interlink.create.a1 a1 1\r\n")
            async with sockets(site, PLUGIN, 1) as (plugin,):
                assert await plugin.is_in()
                for _ in range(UNREAD_MIB * MIB // len(payload)):
                    head = b"PUB interlink.create.a1 _INBOX_plugin.x %d\r\n" % len(payload)
                    plugin.writer.write(head + payload + b"\r\n")
                    await plugin.writer.drain()
                plugin.writer.write(b"PING\r\n")
                await plugin.said(b"PONG")
            assert await works(site, "beta")

    asyncio.run(attempt())
    assert count == 8
    assert memory_mib(site) - before < 2 * count * PENDING_MIB + CALM_MIB


def test_a_site_that_is_closed_is_out_and_may_come_back(site: Site) -> None:
    async def attempt() -> None:
        async with sockets(site, "alpha", 1) as (one,):
            assert await one.is_in()
            site("close", "alpha")
            site.server.reload()
            assert "PONG" not in await one.said(b"PONG")  # until the server has closed it
        assert not await works(site, "alpha")
        assert await works(site, "beta")
        site("open", "alpha")
        site.server.reload()
        while not await works(site, "alpha"):
            await asyncio.sleep(0.02)

    asyncio.run(attempt())
