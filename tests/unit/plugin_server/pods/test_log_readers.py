"""Logs that somebody means harm with: authors who do not read on, and sites that never end."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import zlib
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plugin_server.common.errors import Busy
from plugin_server.nats import log_reader
from plugin_server.pods.log_shares import LogShares
from plugin_server.pods.logs import UNREAD
from templates.common.json_codec import dump_json
from templates.nats.connection import Request
from templates.protocol import messages
from templates.protocol.messages import LOG_DATA, LogEnd, LogRequest, Refusal
from tests.support.nats_server import NatsServer
from tests.unit.plugin_server.conftest import Plugin, until
from tests.unit.plugin_server.gunicorn import Gunicorn, UnixConnection
from tests.unit.plugin_server.pod_builders import job_of, log_request, pod, status
from tests.unit.plugin_server.site import Site

pytestmark = pytest.mark.security

MIB = 1024 * 1024
GROWTH = 100 * MIB  # what one site, or one author, may cost the plugin

Say = Callable[[bytes], Awaitable[None]]


# --- authors --------------------------------------------------------------------------------------


def take_all(shares: LogShares, held: contextlib.ExitStack, namespace: str, pods: int = 64) -> int:
    """As many readers as somebody with so many pods can get."""
    taken = 0
    for number in range(pods):
        with contextlib.suppress(Busy):
            while True:
                held.enter_context(shares.reader(namespace, f"{namespace}-{number}"))
                taken += 1
    return taken


@pytest.mark.parametrize("readers", [1, 2, 3, 8, 64, 500])
def test_a_namespace_leaves_as_many_readers_as_it_has(readers: int) -> None:
    shares = LogShares(readers)
    with contextlib.ExitStack() as held:
        taken = take_all(shares, held, "greedy", 500)
        assert taken == (readers + 1) // 2
        if readers > 1:
            with shares.reader("other", "pod") as number:
                assert number == taken + 1
    with contextlib.ExitStack() as held:
        assert take_all(shares, held, "greedy", 500) == taken  # all were given back


def test_a_pod_has_a_quarter_of_that_and_its_namespace_finds_more() -> None:
    shares = LogShares(64)
    with contextlib.ExitStack() as held:
        assert take_all(shares, held, "ns", pods=1) == 13
        assert take_all(shares, held, "ns") == 19


def test_every_further_namespace_finds_some() -> None:
    shares = LogShares(64)
    with contextlib.ExitStack() as held:
        taken = [take_all(shares, held, f"ns-{number}") for number in range(7)]
        assert taken == [32, 16, 8, 4, 2, 1, 1]


def test_the_refusal_says_who_has_them() -> None:
    shares = LogShares(8)
    most = "logs (server.log_readers) are being read, most by namespaces"
    with contextlib.ExitStack() as held:
        held.enter_context(shares.reader("a", "a-1"))
        held.enter_context(shares.reader("a", "a-1"))
        words = f"2 of 8 {most} a 2; 2 of them are this pod's, the rest is for others: try it later"
        with pytest.raises(Busy) as caught, shares.reader("a", "a-1"):
            pass
        assert str(caught.value) == words
        take_all(shares, held, "a")
        words = f"4 of 8 {most} a 4; the rest is for other namespaces than a: try it later"
        with pytest.raises(Busy) as caught, shares.reader("a", "a-9"):
            pass
        assert str(caught.value) == words
        for name in "bcdef":
            take_all(shares, held, name)
        with pytest.raises(Busy) as caught, shares.reader("g", "g-1"):
            pass
        assert str(caught.value) == f"8 of 8 {most} a 4, b 2, c 1; none is left: try it later"


# --- the plugin as it runs ------------------------------------------------------------------------


def running(site: Site, log: bytes, namespace: str = "default", **also: Any) -> dict[str, Any]:
    raw = pod(**also)
    raw["metadata"]["namespace"] = namespace
    site.say(status(raw))
    site.logs[job_of(raw), "main"] = log
    return raw


def known(found: Gunicorn, raw: dict[str, Any]) -> None:
    until(lambda: found.call("GET", "/status", [raw])[1] != b"[]", 60)


def peak(found: Gunicorn) -> int:
    """The most bytes that the worker had since ``reset``."""
    lines = Path(f"/proc/{found.workers()[0]}/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def reset(found: Gunicorn) -> int:
    """Begin to measure; returns what it has now."""
    Path(f"/proc/{found.workers()[0]}/clear_refs").write_text("5")
    return peak(found)


def ask(found: Gunicorn, raw: dict[str, Any], **options: Any) -> http.client.HTTPConnection:
    """Ask for a log as a client that reads only when it is told to, and takes little at once."""
    client = http.client.HTTPConnection("127.0.0.1", found.port, timeout=60)
    client.sock = socket.socket()
    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.sock.settimeout(60)
    client.sock.connect(("127.0.0.1", found.port))
    client.request("GET", "/getLogs", log_request(raw, **options))
    return client


def test_one_author_takes_neither_all_readers_nor_the_memory(
    nats: NatsServer, site: Site, tmp_path: Path
) -> None:
    log = b"0123456789abcde\n" * (MIB // 16) * 12
    with contextlib.ExitStack() as clients, Gunicorn(tmp_path, nats) as found:
        greedy = [running(site, log, "greedy") for _ in range(16)]
        modest = running(site, log, "modest")
        for raw in (*greedy, modest):
            known(found, raw)
        before = reset(found)
        for number in range(64):
            client = ask(found, greedy[number % 16])
            clients.callback(client.close)
        until(lambda: len(site.log_requests) >= 64, 60)  # two windows of each of 32
        assert len(site.log_requests) == 64
        assert peak(found) - before < GROWTH
        code, content = found.call("GET", "/getLogs", log_request(modest).encode())
        assert (code, content == log) == (200, True)
        assert peak(found) - before < GROWTH
        code, content = found.call("GET", "/getLogs", log_request(greedy[0]).encode())
        assert code == 200 and content.startswith(b"[interlink: 32 of 64 logs")


class Impatient(Gunicorn):
    """The plugin, which gives clients one second and sites an hour."""

    application = "tests.unit.plugin_server.impatient:app"


@pytest.mark.parametrize("door", ["tcp", "unix"])
def test_a_client_that_does_not_read_on_is_given_up(
    nats: NatsServer, site: Site, tmp_path: Path, door: str
) -> None:
    log = os.urandom(4 * MIB) * 2
    path = f"{tmp_path}/plugin.sock"
    listen = {"listen": f"unix://{path}"} if door == "unix" else {}
    plugin = Impatient(tmp_path, nats, server={"log_readers": 1}, **listen)
    if door == "unix":
        plugin.connect = lambda: UnixConnection(path)  # type: ignore[method-assign]
    with plugin as found:
        raw = running(site, log)
        known(found, raw)
        with contextlib.closing(plugin.connect()) as client:
            client.request("GET", "/getLogs", log_request(raw))
            until(lambda: len(site.log_requests) == 2, 30)

            def others_can_read() -> bool:
                return found.call("GET", "/getLogs", log_request(raw).encode())[1] == log

            until(others_can_read, 60)
            text = client.getresponse().read()
            rest, _, words = text.rpartition(b"[")
            assert b"[" + words == UNREAD
            assert log.startswith(rest) and len(rest) < len(log)
        assert "Traceback" not in found.log()


def test_nothing_is_read_on_for_a_client_that_is_gone(
    nats: NatsServer, site: Site, tmp_path: Path
) -> None:
    with Gunicorn(tmp_path, nats, server={"log_readers": 1}) as found:
        endless = running(site, b"x" * (40 * MIB))
        quiet = running(site, b"first\n")
        request = log_request(running(site, b"whole\n")).encode()
        for raw, follow in ((endless, False), (endless, True), (quiet, True)):
            known(found, raw)
            client = ask(found, raw, Follow=follow)
            assert client.getresponse().read(1)
            client.close()

            until(lambda: found.call("GET", "/getLogs", request)[1] == b"whole\n", 60)
            asked = len(site.log_requests)
            for _ in range(20):
                assert found.call("GET", "/status", [raw])[0] == 200
            assert len(site.log_requests) == asked


# --- sites ----------------------------------------------------------------------------------------


class Liar(Site):
    """A site that answers requests for logs as a test says."""

    def __init__(self, url: str, lie: Callable[[Say, LogRequest], Awaitable[None]]) -> None:
        super().__init__(url, "liar")
        self._lie = lie

    async def _logs(self, request: Request) -> None:
        asked = messages.read_log_request(await request.message(self.pool))
        self.log_requests.append(asked)

        async def say(raw: bytes) -> None:
            await self._link.publish_raw(request.reply, raw)

        await self._lie(say, asked)


def end(cursor: str = "1", sent: int = 0, over: bool = False) -> bytes:
    return dump_json({"v": 1, **messages.write_log_end(LogEnd(cursor, sent, over))})


async def nothing(say: Say, asked: LogRequest) -> None:
    await say(end())


async def one_byte(say: Say, asked: LogRequest) -> None:
    await say(LOG_DATA + b"x")
    await say(end(sent=1))


async def empty_messages(say: Say, asked: LogRequest) -> None:
    for _ in range(6_000):
        await say(LOG_DATA)
    await say(end())


async def small_messages(say: Say, asked: LogRequest) -> None:
    for _ in range(6_000):
        await say(LOG_DATA + b"x")
    await say(end(sent=6_000))


async def too_much(say: Say, asked: LogRequest) -> None:
    for _ in range(30):
        await say(LOG_DATA + b"x" * 700_000)
    await say(end(sent=21_000_000))


async def a_large_cursor(say: Say, asked: LogRequest) -> None:
    await say(end("9" * 700_000, over=False))


async def a_long_cursor(say: Say, asked: LogRequest) -> None:
    await say(end("9" * 2000, over=False))


PACKED_END = zlib.compress(end("9" * 40_000_000))


async def a_packed_end(say: Say, asked: LogRequest) -> None:
    await say(PACKED_END)


PACKED_REFUSAL = zlib.compress(
    dump_json({"v": 1, **messages.write_refusal(Refusal("unknown", "x" * 40_000_000, True))})
)


async def a_packed_refusal(say: Say, asked: LogRequest) -> None:
    await say(PACKED_REFUSAL)


LIES = [
    nothing,
    one_byte,
    empty_messages,
    small_messages,
    too_much,
    a_large_cursor,
    a_long_cursor,
    a_packed_end,
    a_packed_refusal,
]


@pytest.fixture(scope="module")
def plugin_process(
    nats: NatsServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gunicorn]:
    folder = tmp_path_factory.mktemp("plugin")
    found = Impatient(folder, nats, server={"log_readers": 500}).start()
    yield found
    found.stop(signal.SIGKILL)  # what it reads still pauses


@pytest.mark.parametrize("lie", LIES)
def test_a_site_that_lies_is_asked_rarely_and_takes_no_memory(
    plugin_process: Gunicorn,
    nats: NatsServer,
    lie: Callable[[Say, LogRequest], Awaitable[None]],
) -> None:
    found = plugin_process
    with Liar(nats.url, lie) as site, contextlib.ExitStack() as clients:
        pods = [running(site, b"", lie.__name__.replace("_", "-"), pool="liar") for _ in range(4)]
        for raw in pods:
            known(found, raw)
        before = reset(found)
        for raw in pods:
            clients.callback(ask(found, raw).close)
            clients.callback(ask(found, raw, Follow=True).close)
        until(lambda: len(site.log_requests) >= 8, 60)
        for _ in range(20):
            assert found.call("GET", "/status", [pods[0]])[0] == 200
        assert len(site.log_requests) == 8  # of each reader one, and then there is a pause
        assert peak(found) - before < GROWTH


@pytest.mark.parametrize("follow", [False, True])
def test_a_log_without_end_or_content_ends(
    plugin: Plugin, nats: NatsServer, monkeypatch: pytest.MonkeyPatch, follow: bool
) -> None:
    monkeypatch.setattr(log_reader, "LONGEST_PAUSE_S", 0.01)
    with Liar(nats.url, nothing) as site:
        raw = running(site, b"", pool="liar")
        until(lambda: plugin.service.table.find(raw["metadata"]["uid"]))
        plugin.status(raw)
        answer = plugin.client.get("/getLogs", data=log_request(raw, Follow=follow))
        assert answer.text == (
            "[interlink: the rest of the log cannot be read now: "
            "pool liar sends nothing, and does not end it]\n"
        )
        assert len(site.log_requests) == log_reader.MOST_EMPTY + 1


@pytest.mark.parametrize("lie", [nothing, one_byte])
def test_a_site_that_sends_hardly_anything_is_left_alone_for_a_while(
    plugin: Plugin,
    nats: NatsServer,
    monkeypatch: pytest.MonkeyPatch,
    lie: Callable[[Say, LogRequest], Awaitable[None]],
) -> None:
    pauses: list[float] = []
    whole = log_reader.LogReader._pause_after

    def pause_after(reader: log_reader.LogReader, window: log_reader.Window) -> float:
        pauses.append(whole(reader, window))
        return 0.0

    monkeypatch.setattr(log_reader.LogReader, "_pause_after", pause_after)
    with Liar(nats.url, lie) as site:
        raw = running(site, b"", pool="liar")
        until(lambda: plugin.service.table.find(raw["metadata"]["uid"]))
        plugin.status(raw)
        options = {"Follow": True, "Bytes": 0 if lie is nothing else 10}
        assert plugin.client.get("/getLogs", data=log_request(raw, **options)).data
    longest = log_reader.LONGEST_PAUSE_S
    growing = [0.5, 1.0, 2.0, 4.0] + [longest] * (log_reader.MOST_EMPTY - 4)
    assert pauses[:10] == (growing[:10] if lie is nothing else [0.25] * 10)
