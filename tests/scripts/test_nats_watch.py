"""The watch over the real server: it names who floods it, and closes nobody else's account."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from templates.cli import nats_watch
from templates.cli.nats_watch import Figures, Rates, Watch
from tests.scripts.test_nats_accounts import Socket, sockets, works
from tests.support.nats_users import Site
from tests.support.sources import REPO

pytestmark = pytest.mark.security

SITES = ["alpha", "beta"]
MANY = 100_000


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    made("add", "alpha", "a")
    made("add", "beta", "b")
    made.server.start()
    yield made
    made.server.stop()


async def flood(one: Socket, subject: bytes, count: int) -> None:
    message = b"PUB %s 100\r\n%s\r\n" % (subject, bytes(100))
    for _ in range(count // 1000):
        one.writer.write(message * 1000)
        await one.writer.drain()


async def connect(site: Site, count: int) -> None:
    for _ in range(count):
        assert await works(site, "alpha")


def told(before: Figures, after: Figures) -> dict[str, str]:
    return dict(nats_watch.exceeded(before, after, 10, Rates()))


@pytest.mark.parametrize("subject", [b"interlink.status.a", b"refused"])
def test_who_says_too_much_is_named(site: Site, subject: bytes) -> None:
    async def attempt() -> None:
        url = f"http://{site.monitor}"
        async with sockets(site, "alpha", 1) as (one,), sockets(site, "beta", 1) as (other,):
            assert await one.is_in()
            assert await other.is_in()
            before = nats_watch.look(url, SITES)
            await flood(other, b"interlink.status.b", 1000)
            await flood(one, subject, MANY)
            one.writer.write(b"PING\r\n")
            await one.said(b"PONG")
            after = nats_watch.look(url, SITES, before)
        expected = f"{MANY / 10:.4g} messages a second (limit 5000)"
        assert told(before, after) == {"alpha": expected}
        assert told(after, nats_watch.look(url, SITES, after)) == {}

    asyncio.run(attempt())


def test_who_connects_too_often_is_named(site: Site) -> None:
    async def attempt() -> None:
        url = f"http://{site.monitor}"
        await connect(site, 60)
        before = nats_watch.look(url, SITES)
        between = nats_watch.look(url, SITES, before)
        assert told(before, between) == {}
        await connect(site, 51)
        after = nats_watch.look(url, SITES, between)
        assert told(between, after) == {"alpha": "5.1 connections a second (limit 5)"}

    asyncio.run(attempt())


def test_a_server_that_was_started_anew_has_counted_less() -> None:
    before, after = Rates(1e6, 1e6, 100, 100), Rates()
    assert told(Figures({"alpha": before}, 9), Figures({"alpha": after, "new": before}, 9)) == {}


@contextlib.asynccontextmanager
async def watching(site: Site, *words: str) -> AsyncIterator[asyncio.StreamReader]:
    command = [sys.executable, "-P", "-m", "templates.cli.nats_site", "watch", *words]
    command += ["--dir", str(site.folder), "--monitor", f"http://{site.monitor}"]
    command += ["--every", "0.1", "--messages", "1000"]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, env={"PYTHONPATH": str(REPO)}
    )
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        process.terminate()
        await process.wait()


def test_it_closes_who_goes_on_and_nobody_else(site: Site) -> None:
    reload = shlex.join(["kill", "-HUP", str(site.server.pid)])

    async def attempt() -> None:
        async with contextlib.AsyncExitStack() as stack:
            (other,) = await stack.enter_async_context(sockets(site, "beta", 1))
            (one,) = await stack.enter_async_context(sockets(site, "alpha", 1))
            assert await other.is_in()
            assert await one.is_in()
            lines = await stack.enter_async_context(watching(site, "--close", "--reload", reload))
            flooding = asyncio.ensure_future(flood(one, b"interlink.status.a", 10**9))
            heard = [await lines.readline()]
            while b"closed" not in heard[-1]:
                heard.append(await lines.readline())
            assert len(heard) >= 4  # it was named three times before
            assert {line.split(b":")[0] for line in heard} == {b"alpha"}
            with pytest.raises(OSError):
                await flooding
            assert heard[-1] == b"alpha: closed; nats-site open alpha lets it in again\n"
            assert not await works(site, "alpha")
            other.writer.write(b"PING\r\n")
            assert await other.is_in()
        site("open", "alpha")
        site.server.reload()
        while not await works(site, "alpha"):
            await asyncio.sleep(0.02)

    asyncio.run(attempt())


@pytest.mark.parametrize("reload", ["false", "no-such-program"])
def test_a_reload_that_fails_is_told(
    site: Site, reload: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    nats_watch.close(Watch(site.folder, "", Rates(), 1, 1, reload), ["alpha"])
    closed, failed = capsys.readouterr().out.splitlines()
    assert closed.startswith("alpha: closed; ")
    assert failed.startswith(f"{reload}: failed, and the server lets them in still: ")
    nats_watch.close(Watch(site.folder, "", Rates(), 1, 1, reload), ["alpha"])
    assert capsys.readouterr().out == ""


def test_without_a_server_it_says_so_and_goes_on(site: Site) -> None:
    async def attempt() -> None:
        site.server.stop()
        async with watching(site) as lines:
            for _ in range(2):
                assert b"Connection refused" in await lines.readline()
            site.server.start()
            async with sockets(site, "alpha", 1) as (one,):
                assert await one.is_in()
                flooding = asyncio.ensure_future(flood(one, b"interlink.status.a", 10**9))
                while not (await lines.readline()).startswith(b"alpha: "):
                    pass
                flooding.cancel()

    asyncio.run(attempt())
