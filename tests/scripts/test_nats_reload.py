"""Sites that are added while all others work: nothing is lost, on one server and on three."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from scripts.lib.interlink import free_ports
from templates.nats.connection import Link, Request
from templates.nats.requests import NoResponders, Unanswered
from templates.nats.subjects import PLUGIN
from tests.support.nats_server import NatsServer
from tests.support.nats_users import Site, started

pytestmark = pytest.mark.security

NEW_SITES = 3
ASKERS = 4
LARGE = range(0, 1000, 50)  # some of what one asks for
LONG_S = 110  # less than an answer may be silent
STATUS = "interlink.status.a"
LOG = 501  # messages, said while sites are added
NOISE = os.urandom(700_000).hex()  # goes in parts


class Servers:
    """One server, or several with routes between them, that share the files of nats-site."""

    def __init__(self, folder: Path, count: int) -> None:
        self.site = Site(folder)
        self.all = [self.site.server]
        self.all += [NatsServer(folder / f"server{n}") for n in range(1, count)]
        routes = free_ports(count)
        text = (self.site.folder / "nats-server.conf").read_text()
        for number, server in enumerate(self.all if count > 1 else []):
            others = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
            cluster = f'{{ name: x, listen: "127.0.0.1:{routes[number]}", routes: [{others}]'
            own = text.replace(f":{self.site.server.port}", f":{server.port}")
            own = own.replace(
                f":{self.site.server.websocket_port}", f":{server.websocket_port}"
            ).replace(str(self.site.server.folder), str(server.folder))
            own = re.sub(r"^http: .*\n", "", own, flags=re.MULTILINE)
            own += f"server_name: n{number}\ncluster {cluster}, pool_size: -1 }}\n"
            name = f"nats-server-{number}.conf"
            (self.site.folder / name).write_text(own)
            (server.folder / "nats.conf").write_text(f'include "../nats/{name}"\n')
        self.reloads = 0

    async def tell(self) -> None:
        """Have all of them read the files anew, one after the other."""
        self.reloads += 1
        for server in self.all:
            server.reload()
        for server in self.all:
            while server.log().count("Reloaded server configuration") < self.reloads:
                await asyncio.sleep(0.02)

    async def bring_in(self, *words: str) -> None:
        """As the output of nats-site tells its admin to."""
        self.site("add", *words, opens=False)
        await self.tell()
        self.site("open", words[0])
        await self.tell()

    def link(self, name: str, server: int) -> Link:
        """A connection to one of them."""
        link = self.site.link(name)
        which = self.all[server % len(self.all)]
        settings = {"servers": (which.websocket_url,), "ca_file": which.ca_file}
        link._settings = link._settings._replace(**settings)
        return link


@pytest.fixture(params=[1, 3])
def servers(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Servers]:
    made = Servers(tmp_path, request.param)
    for server in made.all:
        server.start()
    yield made
    for server in made.all:
        server.stop()


async def count_text(request: Request) -> None:
    """Take a request, which may be large."""
    pool = request.subject.rpartition(".")[2]
    await request.answer(pool, {"heard": len((await request.message(pool))["text"])})


async def exchange(plugin: Link, pool: str, *, much: bool = True) -> None:
    """Ask a site; with much, in parts both ways: requests of creates, answers to queries."""
    text = NOISE if much else "small"
    answer = await plugin.request(pool, f"interlink.create.{pool}", {"text": text}, LONG_S)
    assert answer["heard"] == len(text)
    if much:
        answer = await plugin.request(pool, f"interlink.query.{pool}", {"much": True}, LONG_S)
        assert answer["text"] == NOISE


class Load:
    """What goes on at a site while others are added."""

    def __init__(self, servers: Servers) -> None:
        self.plugin, self.alpha = servers.link(PLUGIN, 0), servers.link("alpha", 1)
        self.heard: dict[str, list[int]] = {}
        self.said = 0
        self.asked = 0
        self.ended = asyncio.Event()
        self.slow = asyncio.Event()
        self.alpha.subscribe("interlink.create.a", count_text, queue="a")
        self.alpha.subscribe("interlink.query.a", self._query, queue="a")
        self.alpha.subscribe("interlink.logs.a.*", self._log, queue="a")
        self.plugin.subscribe("interlink.status.*", self._hear)

    async def _query(self, request: Request) -> None:
        """Answer with much at once, or after all that happens meanwhile."""
        if (await request.message("a")).get("much"):
            await request.answer("a", {"text": NOISE})
            return
        await self.ended.wait()
        await request.answer("a", {"late": True})

    async def _log(self, request: Request) -> None:
        for number in range(LOG):
            await self.alpha.publish_raw(request.reply, b"%d" % number)
            if number == LOG // 4:
                self.slow.set()
                await self.ended.wait()

    async def _hear(self, request: Request) -> None:
        self.heard.setdefault(request.subject, []).append((await request.message(""))["number"])

    @contextlib.asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        async with started(self.plugin, self.alpha), asyncio.TaskGroup() as group:
            late = group.create_task(self.plugin.request("a", "interlink.query.a", {}, LONG_S))
            log = group.create_task(self._read_log())
            await self.slow.wait()
            for _ in range(ASKERS):
                group.create_task(self._ask())
            group.create_task(self._publish())
            yield
            self.ended.set()
            assert (await late)["late"]
            assert await log == [b"%d" % number for number in range(LOG)]
            while len(self.heard[STATUS]) < self.said:
                await asyncio.sleep(0.02)
        assert self.heard[STATUS] == list(range(self.said))
        assert (self.plugin.connections, self.alpha.connections) == (1, 1)
        assert self.asked > ASKERS

    async def _read_log(self) -> list[bytes]:
        async with self.plugin.stream() as (inbox, following):
            await self.plugin.publish_request("interlink.logs.a.j", inbox, {})
            return [await following(LONG_S) for _ in range(LOG)]

    async def _ask(self) -> None:
        """Ask again if nobody was there: nothing was carried out; any other failure is one."""
        for number in itertools.count():
            if self.ended.is_set():
                return
            with contextlib.suppress(NoResponders):
                await exchange(self.plugin, "a", much=number in LARGE)
                self.asked += 1

    async def _publish(self) -> None:
        while not self.ended.is_set():
            await self.alpha.publish(STATUS, {"number": self.said})
            self.said += 1
            await asyncio.sleep(0.002)


def test_sites_are_added_under_load(servers: Servers) -> None:
    """And who was connected before hears each of them, and is answered by it."""

    async def attempt() -> None:
        await servers.bring_in("alpha", "a")
        load = Load(servers)
        async with load.going_on():
            for number in range(NEW_SITES):
                name, pool = f"new{number}", f"n{number}"
                await servers.bring_in(name, pool)
                await greets(servers, load, name, pool, number)
            servers.site("remove", "new0")
            await servers.tell()
            while True:  # until it is gone
                try:
                    await load.plugin.request("n0", "interlink.create.n0", {}, 10)
                except NoResponders:
                    break
                except Unanswered:
                    continue

    asyncio.run(attempt())


async def greets(servers: Servers, load: Load, name: str, pool: str, server: int) -> None:
    """A new site answers and is heard, wherever it is connected."""
    link = servers.link(name, server)

    async def much(request: Request) -> None:
        await request.answer(pool, {"text": NOISE})

    link.subscribe(f"interlink.create.{pool}", count_text, queue=pool)
    link.subscribe(f"interlink.query.{pool}", much, queue=pool)
    async with started(link):
        is_answered = False
        while not is_answered:  # its subscriptions have to reach the plugin's server
            with contextlib.suppress(NoResponders):
                await exchange(load.plugin, pool)
                is_answered = True
        for number in range(10):
            await link.publish(f"interlink.status.{pool}", {"number": number})
        while len(load.heard.get(f"interlink.status.{pool}", ())) < 10:
            await asyncio.sleep(0.02)
