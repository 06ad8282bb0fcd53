"""The connection to NATS on the real server: what breaks, what is told, what comes back."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Callable, Optional

import pytest

from templates.common.errors import WireError
from templates.nats import connection as link_module
from templates.nats.connection import Link, Request
from templates.nats.options import LinkSettings
from templates.nats.requests import LinkError, NoResponders, NotConnected, Unanswered
from templates.nats.shares import MOST_WAITING
from tests.support.nats_server import NatsServer
from tests.support.nats_users import started
from tests.unit.templates.clients import run

POOL = "p"
CREATE = "interlink.create.p"
ECHOED = 1000  # characters


@pytest.fixture(scope="module")
def steady(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A server for tests that do it no harm."""
    made = NatsServer(tmp_path_factory.mktemp("server")).start()
    yield made
    made.stop()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A link that notices silence within half a second."""
    monkeypatch.setattr(link_module, "PING_EVERY_S", 0.2)
    monkeypatch.setattr(link_module, "PING_TIMEOUT_S", 0.3)


def settings(server: NatsServer, *, plain: bool = False, **options: Any) -> LinkSettings:
    url = server.url if plain else server.websocket_url
    return LinkSettings((url,), ca_file="" if plain else server.ca_file, **options)


async def until(condition: Callable[[], object], seconds: float = 30) -> None:
    """Wait for what no event tells."""

    async def wait() -> None:
        while not condition():
            await asyncio.sleep(0.01)

    await asyncio.wait_for(wait(), seconds)


def digest(text: str) -> str:
    """Answers are not as large as requests may be."""
    return hashlib.sha256(text.encode()).hexdigest()


def serving(link: Link, subject: str = "interlink.create.p") -> Link:
    """A link that answers with what it was asked."""

    async def echo(request: Request) -> None:
        text = (await request.message(POOL)).get("text", "")
        await request.answer(POOL, {"echo": text if len(text) <= ECHOED else digest(text)})

    link.subscribe(subject, echo, queue=POOL)
    return link


# --- asking and answering -------------------------------------------------------------------------


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "websocket"])
@pytest.mark.parametrize(
    "text",
    ["small", "0123456789" * 2_000_000, os.urandom(10_000_000).hex()],
    ids=["small", "20 MB", "20 MB of noise"],
)
def test_requests_and_answers_of_any_size(steady: NatsServer, plain: bool, text: str) -> None:
    """The server takes 1 MiB at a time."""

    async def work() -> None:
        site = serving(Link(settings(steady, plain=plain), "interlink"))
        plugin = Link(settings(steady, plain=plain), "interlink")
        async with started(site, plugin):
            answer = await plugin.request(POOL, CREATE, {"text": text}, 60)
            assert answer["echo"] == (text if len(text) <= ECHOED else digest(text))

    run(work())


def test_large_messages_of_many_at_once(steady: NatsServer) -> None:
    texts = [os.urandom(1_200_000).hex() for _ in range(6)]

    async def work() -> None:
        site = serving(Link(settings(steady), "interlink"))
        plugin = Link(settings(steady), "interlink")
        async with started(site, plugin):
            requests = [plugin.request(POOL, CREATE, {"text": text}, 60) for text in texts]
            answers = await asyncio.gather(*requests)
        assert [answer["echo"] for answer in answers] == list(map(digest, texts))


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "websocket"])
def test_an_answer_in_parts(steady: NatsServer, plain: bool) -> None:
    text = os.urandom(1_500_000).hex()

    async def answer(request: Request) -> None:
        await request.answer(POOL, {"text": text})

    async def work() -> None:
        site, plugin = (Link(settings(steady, plain=plain), "interlink") for _ in range(2))
        site.subscribe("interlink.query.p", answer)
        site.subscribe("interlink.create.p", answer)
        async with started(site, plugin):
            found = await plugin.request(POOL, "interlink.query.p", {}, 60)
            assert found["text"] == text
            with pytest.raises(WireError, match="of at most 1048576 bytes"):
                await plugin.request(POOL, CREATE, {}, 60)

    run(work())


def test_nobody_there_is_another_thing_than_no_answer(steady: NatsServer) -> None:
    async def silent(request: Request) -> None:
        assert request.subject == CREATE

    async def work() -> None:
        site, plugin = (Link(settings(steady), "interlink") for _ in range(2))
        site.subscribe("interlink.create.p", silent)
        async with started(site, plugin):
            with pytest.raises(Unanswered, match="no answer within 0"):
                await plugin.request(POOL, CREATE, {}, 0.2)
            with pytest.raises(NoResponders):
                await plugin.request(POOL, "interlink.query.p", {}, 20)

    run(work())


def test_without_a_connection_nothing_is_sent() -> None:
    async def work() -> None:
        link = Link(LinkSettings(("nats://127.0.0.1:1",)), "interlink")
        for attempt in (
            lambda: link.request(POOL, CREATE, {}, 5),
            lambda: link.publish("interlink.hello", {}),
            lambda: link.publish_request(CREATE, "_INBOX.x", {}),
            link.settle,
        ):
            with pytest.raises(NotConnected):
                await attempt()
        with pytest.raises(NotConnected):
            async with link.stream():
                pass
        await link.start()
        assert not await link.connected(0.3)
        assert link.silent_s == float("inf")
        await until(lambda: "Connect" in link.error or "refused" in link.error)
        await link.stop()

    run(work())


def test_one_message_never_ends_the_hearing_of_others(
    steady: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def moody(request: Request) -> None:
        kind = (await request.message(POOL))["kind"]
        if kind == "link":
            raise Unanswered("the other end is gone")
        if kind == "wire":
            raise WireError("create.name", "must be text")
        if kind == "bug":
            raise ZeroDivisionError
        await request.answer(POOL, {"fine": True})

    async def work() -> None:
        site, plugin = (Link(settings(steady), "interlink") for _ in range(2))
        site.subscribe("interlink.create.p", moody)
        async with started(site, plugin):
            for kind in ("link", "wire", "bug"):
                await plugin.publish(CREATE, {"kind": kind})
            await plugin.publish_raw(CREATE, b"no message at all")
            assert (await plugin.request(POOL, CREATE, {"kind": "good"}, 20))["fine"]
            await until(lambda: "could not be handled" in caplog.text)

    run(work())
    assert "refused a message: create.name: must be text" in caplog.text
    assert "refused a message: message: is not JSON" in caplog.text


def test_a_slow_message_delays_no_other(steady: NatsServer) -> None:
    async def work() -> None:
        hold = asyncio.Event()

        async def serve(request: Request) -> None:
            if (await request.message(POOL)).get("slow"):
                await hold.wait()
            await request.answer(POOL, {})

        site, plugin = (Link(settings(steady), "interlink") for _ in range(2))
        site.subscribe("interlink.create.p", serve)
        async with started(site, plugin):
            slow = asyncio.ensure_future(plugin.request(POOL, CREATE, {"slow": True}, 60))
            for _ in range(20):
                await plugin.request(POOL, CREATE, {}, 20)
            assert not slow.done()
            hold.set()
            await slow

    run(work())


def test_no_more_messages_are_handled_at_once_than_there_is_room_for(
    steady: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "HANDLERS_AT_ONCE", 3)
    at_once, most = 0, 0

    async def serve(request: Request) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.01)
        at_once -= 1
        await request.answer(POOL, {})

    async def work() -> None:
        site, plugin = (Link(settings(steady), "interlink") for _ in range(2))
        site.subscribe("interlink.create.p", serve)
        async with started(site, plugin):
            await asyncio.gather(*(plugin.request(POOL, CREATE, {}, 60) for _ in range(30)))

    run(work())
    assert most == 3


def test_a_message_that_wants_no_answer_gets_none(steady: NatsServer) -> None:
    async def work() -> None:
        replies: asyncio.Queue[str] = asyncio.Queue()

        async def serve(request: Request) -> None:
            await replies.put(request.reply)
            await request.answer(POOL, {"x": "y"})

        site, plugin = (Link(settings(steady), "interlink") for _ in range(2))
        site.subscribe("interlink.create.p", serve)
        heard: list[str] = []

        async def keep(request: Request) -> None:
            heard.append(request.subject)

        site.subscribe("interlink.delete.p.*", keep)
        async with started(site, plugin):
            await plugin.publish(CREATE, {})
            assert await replies.get() == ""
            # Nor does an answer go to a subject of ours.
            await plugin.publish_request(CREATE, "interlink.delete.p.x", {})
            assert await replies.get() == ""
            assert (await plugin.request(POOL, CREATE, {}, 20))["x"] == "y"
        assert heard == []

    run(work())


# --- publications ---------------------------------------------------------------------------------


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "websocket"])
def test_a_flood_of_one_pool_takes_nothing_from_others(steady: NatsServer, plain: bool) -> None:
    """All publish on one subscription; what is too much of one is dropped, the newest kept."""
    heard: dict[str, list[int]] = {"a": [], "b": []}
    waiting: list[int] = []

    async def work() -> None:
        loud, quiet, plugin = (Link(settings(steady, plain=plain), "interlink") for _ in range(3))

        def keep(pool: str, message: Mapping[str, Any]) -> None:
            heard[pool].append(message["number"])
            waiting.append(sum(map(len, plugin._waiting.values())))
            if pool == "a":
                plugin._share(pool).spend(0.1)  # as if it had been expensive to read

        plugin.subscribe_to_publications("interlink.status.*", keep, 65536)
        async with started(loud, quiet, plugin):
            for number in range(2000):
                await loud.publish("interlink.status.a", {"number": number})
                if number % 100 == 0:
                    await quiet.publish("interlink.status.b", {"number": number})
            await until(lambda: len(heard["b"]) == 20 and len(plugin._waiting) == 2)
            await loud.settle()
            assert heard["b"] == list(range(0, 2000, 100))
            assert len(heard["a"]) < 200
            assert heard["a"] == sorted(heard["a"])
            assert max(waiting) <= 2 * MOST_WAITING
            plugin._shares.clear()

    run(work())


def test_what_a_publication_announces_and_never_sends_holds_up_no_other_pool(
    steady: NatsServer,
) -> None:
    heard: list[str] = []

    async def work() -> None:
        site, plugin = (Link(settings(steady), "interlink") for _ in range(2))

        async def silent(_: Request) -> None:
            return

        site.subscribe("interlink.answerparts.a.*", silent)
        plugin.subscribe_to_publications("interlink.status.*", lambda p, _: heard.append(p), 65536)
        async with started(site, plugin):
            for _ in range(1000):
                parts = {"id": "0a", "pieces": 1, "size": 9, "sha256": ""}
                await site.publish("interlink.status.a", {"parts": parts})
            await site.publish("interlink.status.b", {})
            await until(lambda: heard == ["b"])

    run(work())


def test_what_is_wrong_with_publications_is_not_said_for_each(
    steady: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []

    async def work() -> None:
        site, plugin = (Link(settings(steady), "interlink") for _ in range(2))
        plugin.subscribe_to_publications("interlink.status.*", lambda p, _: heard.append(p), 65536)
        async with started(site, plugin):
            for pool in ("a", "b"):
                for _ in range(50):
                    await site.publish_raw(f"interlink.status.{pool}", b"nonsense")
                await site.publish(f"interlink.status.{pool}", {})
            await until(lambda: sorted(heard) == ["a", "b"])

    run(work())
    assert caplog.text.count("interlink.status.a: refused a message: message: is not JSON") == 1
    assert caplog.text.count("interlink.status.b: refused a message: message: is not JSON") == 1


def test_subjects_of_publications_are_not_endless(
    steady: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "MOST_SUBJECTS", 10)
    heard: set[str] = set()

    async def work() -> None:
        site, plugin = (Link(settings(steady), "interlink") for _ in range(2))
        plugin.subscribe_to_publications("interlink.status.*", lambda p, _: heard.add(p), 65536)
        async with started(site, plugin):
            for number in range(100):
                await site.publish(f"interlink.status.p{number}", {})
            await site.publish("interlink.status.p0", {})
            await site.settle()
            await until(lambda: len(heard) == 10)
            assert len(plugin._waiting) == 10

    run(work())


# --- answers in many messages ---------------------------------------------------------------------


def test_of_a_stream_that_is_not_read_no_more_is_kept_than_was_allowed(steady: NatsServer) -> None:
    async def work() -> None:
        site, plugin = (Link(settings(steady), "interlink") for _ in range(2))

        async def serve(request: Request) -> None:
            for _ in range(100):
                await site.publish_raw(request.reply, bytes(100_000))
            await site.publish_raw("interlink.hello", b"over")

        over = asyncio.Event()

        async def hear(_: Request) -> None:
            over.set()

        site.subscribe("interlink.logs.p.*", serve)
        plugin.subscribe("interlink.hello", hear)
        async with started(site, plugin), plugin.stream(1_000_000) as (inbox, following):
            await plugin.publish_request("interlink.logs.p.x", inbox, {})
            await over.wait()
            size = 0
            with pytest.raises(Unanswered, match="nothing came"):
                while True:
                    size += len(await following(0.2))
            assert size < 1_000_000

    run(work())


def test_a_stream_comes_in_order(steady: NatsServer) -> None:
    async def work() -> None:
        site, plugin = (Link(settings(steady), "interlink") for _ in range(2))

        async def serve(request: Request) -> None:
            for number in range(1000):
                await site.publish_raw(request.reply, b"%d" % number)

        site.subscribe("interlink.logs.p.*", serve)
        async with started(site, plugin), plugin.stream() as (inbox, following):
            await plugin.publish_request("interlink.logs.p.x", inbox, {})
            assert [int(await following(20)) for _ in range(1000)] == list(range(1000))
            with pytest.raises(Unanswered, match="nothing came within 0"):
                await following(0.1)

    run(work())


def test_a_stream_from_nobody(steady: NatsServer) -> None:
    async def work() -> None:
        plugin = Link(settings(steady), "interlink")
        async with started(plugin), plugin.stream() as (inbox, following):
            await plugin.publish_request("interlink.logs.p.x", inbox, {})
            with pytest.raises(NoResponders):
                await following(20)

    run(work())


def test_a_stream_ends_with_its_connection(server: NatsServer) -> None:
    async def work() -> None:
        plugin = Link(settings(server), "interlink")
        async with started(plugin):
            with pytest.raises(LinkError):
                async with plugin.stream() as (_, following):
                    waiting = asyncio.ensure_future(following(60))
                    await asyncio.sleep(0)
                    server.stop()
                    await waiting

    run(work())


# --- breaking -------------------------------------------------------------------------------------


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "websocket"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "goodbye"])
def test_after_a_restart_of_the_server_all_is_as_before(
    server: NatsServer, plain: bool, number: int
) -> None:
    """With "goodbye" the server closes the WebSocket itself, which once ended nats-py's reading."""
    connected = []

    async def note() -> None:
        connected.append(True)

    async def work() -> None:
        site = serving(Link(settings(server, plain=plain), "interlink", note))
        plugin = Link(settings(server, plain=plain), "interlink")
        async with started(site, plugin):
            for round_ in range(2):
                assert (await plugin.request(POOL, CREATE, {"text": "x"}, 20))["echo"] == "x"
                server.stop(number)
                await until(lambda: not (site.is_connected or plugin.is_connected))
                assert site.error
                server.start()
                assert await site.connected(30)
                assert await plugin.connected(30)
                assert (site.connections, site.error) == (round_ + 2, "")
            assert (await plugin.request(POOL, CREATE, {"text": "x"}, 20))["echo"] == "x"

    run(work())
    assert len(connected) == 3


def test_a_request_on_a_connection_that_breaks_ends_at_once(server: NatsServer) -> None:
    async def work() -> None:
        asked = asyncio.Event()

        async def silent(request: Request) -> None:
            asked.set()

        site, plugin = (Link(settings(server), "interlink") for _ in range(2))
        site.subscribe("interlink.create.p", silent)
        async with started(site, plugin):
            request = asyncio.ensure_future(plugin.request(POOL, CREATE, {}, 80))
            await asked.wait()
            server.stop()
            with pytest.raises(Unanswered, match="the connection to NATS broke"):
                await asyncio.wait_for(request, 20)

    run(work())


def test_a_frozen_server_is_noticed_and_left(server: NatsServer, impatient: None) -> None:
    async def work() -> None:
        site = serving(Link(settings(server), "interlink"))
        plugin = Link(settings(server), "interlink")
        async with started(site, plugin):
            server.send(signal.SIGSTOP)
            await until(lambda: not plugin.is_connected)
            assert "does not answer" in plugin.error
            with pytest.raises(NotConnected):
                await plugin.request(POOL, CREATE, {}, 60)
            server.send(signal.SIGCONT)
            assert await site.connected(30)
            assert await plugin.connected(30)
            assert plugin.silent_s < 5
            assert (await plugin.request(POOL, CREATE, {"text": "x"}, 20))["echo"] == "x"

    run(work())


def test_a_frozen_server_holds_up_no_stop(server: NatsServer) -> None:
    async def work() -> None:
        link = Link(settings(server), "interlink")
        async with started(link):
            server.send(signal.SIGSTOP)
            await asyncio.wait_for(link.stop(), 15)

    run(work())


def test_changed_credentials_count_from_the_next_connection_on(tmp_path: Path) -> None:
    def users(password: str) -> dict[str, Any]:
        return {"authorization": {"users": [{"user": "me", "password": password}]}}

    server = NatsServer(tmp_path / "server", **users("one")).start()
    secret = tmp_path / "password"
    secret.write_text("one")

    async def work() -> None:
        wanted = settings(server, user="me", password_file=str(secret))
        async with started(link := Link(wanted, "interlink")):
            server.configure(**users("two"))
            server.stop()
            server.start()
            await until(lambda: "authorization" in link.error.lower())
            secret.write_text("two")
            assert await link.connected(30)

    try:
        run(work())
    finally:
        server.stop()


def test_a_site_that_is_not_let_in_keeps_trying(tmp_path: Path) -> None:
    """nats-py itself gives up after the second refusal."""
    server = NatsServer(tmp_path / "server", authorization={"token": "x"}).start()

    async def work() -> None:
        link = Link(settings(server), "interlink")
        refused = 0
        await link.start()
        try:
            for _ in range(4):
                before = server.log().count("authentication error")
                await until(
                    lambda before=before: server.log().count("authentication error") > before
                )
                refused += 1
        finally:
            await link.stop()
        assert refused == 4

    try:
        run(work())
    finally:
        server.stop()


def test_a_subscription_that_is_not_permitted_is_the_trouble(tmp_path: Path) -> None:
    may = {"publish": ">", "subscribe": "_INBOX.>"}
    user = {"user": "me", "password": "x", "permissions": may}
    server = NatsServer(tmp_path / "server", authorization={"users": [user]}).start()
    (tmp_path / "password").write_text("x")

    async def work() -> None:
        wanted = settings(server, user="me", password_file=str(tmp_path / "password"))
        link = serving(Link(wanted, "interlink"))
        await link.start()
        await until(lambda: "permissions violation" in link.error.lower())
        assert "interlink.create.p" in link.error
        assert not link.is_connected
        await link.stop()

    try:
        run(work())
    finally:
        server.stop()


def test_what_the_server_complains_of_later_is_kept(tmp_path: Path) -> None:
    may = {"publish": "interlink.hello", "subscribe": "_INBOX.>"}
    user = {"user": "me", "password": "x", "permissions": may}
    server = NatsServer(tmp_path / "server", authorization={"users": [user]}).start()
    (tmp_path / "password").write_text("x")

    async def work() -> None:
        wanted = settings(server, user="me", password_file=str(tmp_path / "password"))
        async with started(link := Link(wanted, "interlink")):
            await link.publish("interlink.hello", {})
            await link.settle()
            assert list(link.server_errors) == []
            await link.publish("interlink.status.p", {})
            await link.settle()
            assert "interlink.status.p" in link.server_errors[0]
            assert link.is_connected

    try:
        run(work())
    finally:
        server.stop()


# --- what stands between --------------------------------------------------------------------------


class Proxy(threading.Thread):
    """What sites have between them and the server: passes on, refuses by HTTP, or cuts."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.target = port
        self.answer: Optional[bytes] = None
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.start()

    def run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._serve(self._listener.accept()[0])

    def _serve(self, client: socket.socket) -> None:
        if self.answer is not None:
            client.recv(4096)
            client.sendall(self.answer)
            client.close()
            return
        try:
            server = socket.create_connection(("127.0.0.1", self.target))
        except OSError:
            client.close()
            return
        self._open += [client, server]
        for one, other in ((client, server), (server, client)):
            threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        one.close()

    def cut(self) -> None:
        """Reset every connection."""
        ends, self._open = self._open, []
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        self.cut()


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[NatsServer]:
    """WebSockets without TLS, as they are behind an ingress."""
    made = NatsServer(tmp_path / "server")
    made.configure(websocket={"host": "127.0.0.1", "port": made.websocket_port, "no_tls": True})
    made.start()
    yield made
    made.stop()


@pytest.fixture
def proxy(bare: NatsServer) -> Iterator[Proxy]:
    made = Proxy(bare.websocket_port)
    yield made
    made.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nlogin",
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
        b"not HTTP at all\r\n\r\n",
        b"",
    ],
    ids=["502", "401", "a login page", "a redirect", "nonsense", "a hang-up"],
)
def test_a_proxy_that_answers_itself_is_survived(proxy: Proxy, answer: bytes) -> None:
    """An ingress says 502 while the server behind it restarts."""

    async def work() -> None:
        proxy.answer = answer
        link = serving(Link(LinkSettings((f"ws://127.0.0.1:{proxy.port}",)), "interlink"))
        before = link.error
        await link.start()
        try:
            await until(lambda: link.error != before)
            assert link.error.isprintable()
            proxy.answer = None
            assert await link.connected(30)
        finally:
            await link.stop()

    run(work())


def test_connections_that_are_cut_come_back(proxy: Proxy) -> None:
    async def work() -> None:
        wanted = LinkSettings((f"ws://127.0.0.1:{proxy.port}",))
        site, plugin = serving(Link(wanted, "interlink")), Link(wanted, "interlink")
        async with started(site, plugin):
            for _ in range(3):
                assert (await plugin.request(POOL, CREATE, {"text": "x"}, 20))["echo"] == "x"
                before = site.connections, plugin.connections
                proxy.cut()
                await until(lambda b=before: (site.connections, plugin.connections) > b)
                assert await site.connected(30)
                assert await plugin.connected(30)
                await until(lambda b=before: site.connections > b[0] and plugin.connections > b[1])

    run(work())


def test_a_cut_in_the_middle_of_a_large_message_is_told(proxy: Proxy) -> None:
    async def work() -> None:
        wanted = LinkSettings((f"ws://127.0.0.1:{proxy.port}",))
        site, plugin = Link(wanted, "interlink"), Link(wanted, "interlink")

        async def cut(request: Request) -> None:
            proxy.cut()
            with pytest.raises(LinkError):
                await request.message(POOL)

        site.subscribe("interlink.create.p", cut)
        async with started(site, plugin):
            text = os.urandom(2_000_000).hex()
            with pytest.raises(Unanswered):
                await plugin.request(POOL, CREATE, {"text": text}, 60)

    run(work())


# --- stopping -------------------------------------------------------------------------------------


def test_what_was_published_before_the_stop_arrives(steady: NatsServer) -> None:
    async def work() -> None:
        heard: asyncio.Queue[str] = asyncio.Queue()

        async def keep(request: Request) -> None:
            await heard.put(request.subject)

        listener, speaker = (Link(settings(steady), "interlink") for _ in range(2))
        listener.subscribe("interlink.status.*", keep)
        async with started(listener):
            await speaker.start()
            assert await speaker.connected(20)
            for number in range(500):
                await speaker.publish(f"interlink.status.p{number}", {"noise": "x" * 1000})
            await speaker.stop()
            for _ in range(500):
                await asyncio.wait_for(heard.get(), 20)

    run(work())


def test_a_stop_ends_all_that_is_going_on(steady: NatsServer) -> None:
    async def work() -> None:
        begun, cancelled = asyncio.Event(), asyncio.Event()

        async def endless(request: Request) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        site, plugin = (Link(settings(steady), "interlink") for _ in range(2))
        site.subscribe("interlink.create.p", endless)
        async with started(plugin):
            await site.start()
            assert await site.connected(20)
            request = asyncio.ensure_future(plugin.request(POOL, CREATE, {}, 60))
            await begun.wait()
            await site.stop()
            assert cancelled.is_set()
            await asyncio.wait_for(site.ended(), 5)
            await plugin.stop()
            with pytest.raises(LinkError):
                await request
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        names = [str(task) for task in left if "bounded" not in str(task)]
        assert names == []

    run(work())


def test_a_link_that_was_never_started_stops(steady: NatsServer) -> None:
    async def work() -> None:
        link = Link(settings(steady), "interlink")
        await link.stop()
        await link.ended()

    run(work())
