"""Opening and closing a client: the reason is told, nothing hangs, nothing is left open."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError

from templates.nats import client as connecting
from templates.nats.client import (
    CarefulClient,
    cancel_and_wait,
    close,
    open_client,
    server_of,
    settle,
)
from templates.nats.options import LinkSettings
from tests.support.nats_server import NatsServer
from tests.unit.templates.clients import Connected, nothing, run, user


@pytest.mark.parametrize("url", ["url", "websocket_url"])
def test_open_and_closed(server: NatsServer, url: str) -> None:
    where = str(getattr(server, url))

    async def work() -> None:
        async with Connected(server, servers=(where,), ca_file=server.ca_file) as one:  # type: ignore[arg-type]
            assert one.client.is_connected
            assert server_of(one.client) == where.rpartition("/")[2]
        assert one.client.is_closed
        assert one.complaints == []
        assert one.closed >= 1

    run(work())


def test_what_make_returns_is_the_result(server: NatsServer) -> None:
    async def subscribed(client: Client) -> object:
        return await client.subscribe("x")

    async def work() -> None:
        client = CarefulClient()
        made = await open_client(client, LinkSettings((server.url,)), subscribed, print, int)
        assert getattr(made, "subject", "") == "x"
        await close(client)

    run(work())


def test_a_subscription_that_is_not_permitted_is_an_error(tmp_path: Path) -> None:
    options, mine = user(tmp_path, publish=">", subscribe="_INBOX.>")
    server = NatsServer(tmp_path / "server", **options).start()
    complaints: list[Exception] = []

    async def forbidden(client: Client) -> None:
        await client.subscribe("secret.>")

    async def work() -> None:
        client = CarefulClient()
        settings = LinkSettings((server.url,))._replace(**mine)  # type: ignore[arg-type]
        with pytest.raises(NatsError, match=r'(?i)permissions violation.*"secret\.>"'):
            await open_client(client, settings, forbidden, complaints.append, int)
        await close(client)
        assert len(complaints) == 1

    try:
        run(work())
    finally:
        server.stop()


def test_a_wrong_password_is_what_the_server_says(tmp_path: Path) -> None:
    options, mine = user(tmp_path)
    server = NatsServer(tmp_path / "server", **options).start()
    (tmp_path / "password").write_text("s3cret-but-wrong")

    async def work() -> None:
        with pytest.raises(NatsError, match=r"(?i)authorization violation") as caught:
            async with Connected(server, **mine):
                pass
        assert "s3cret" not in str(caught.value)

    try:
        run(work())
    finally:
        server.stop()


def test_a_server_that_offers_no_tls_learns_nothing(server: NatsServer, tmp_path: Path) -> None:
    _, mine = user(tmp_path)
    tls = server.url.replace("nats:", "tls:")

    async def work() -> None:
        one = Connected(server, servers=(tls,), **mine)  # type: ignore[arg-type]
        with pytest.raises(NatsError, match="offers no TLS"):
            async with one:
                pass

    run(work())


def test_nobody_there_and_a_seed_that_is_none(server: NatsServer, tmp_path: Path) -> None:
    (tmp_path / "seed").write_text("SUNOSEEDATALL")

    async def work() -> None:
        one = Connected(server, nkey_file=str(tmp_path / "seed"))
        with pytest.raises(ConnectionError, match="the client cannot connect") as caught:
            async with one:
                pass
        assert "SUNO" not in str(caught.value)
        server.stop()
        with pytest.raises((OSError, NatsError)):
            async with Connected(server):
                pass

    run(work())


def test_a_server_that_says_nothing_is_left_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "CONNECT_TIMEOUT_S", 1)

    async def work() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            where = f"nats://127.0.0.1:{silent.getsockname()[1]}"
            client = CarefulClient()
            start = time.monotonic()
            with pytest.raises((OSError, NatsError, asyncio.TimeoutError)):
                await open_client(client, LinkSettings((where,)), nothing, lambda _: None, int)
            await close(client)
            assert time.monotonic() - start < 20  # and not for ever

    run(work())


@pytest.mark.parametrize("url", ["url", "websocket_url"])
def test_a_frozen_server_holds_up_no_close(server: NatsServer, url: str) -> None:
    where = str(getattr(server, url))

    async def work() -> None:
        one = Connected(server, servers=(where,), ca_file=server.ca_file)  # type: ignore[arg-type]
        await one.__aenter__()
        server.send(signal.SIGSTOP)
        start = time.monotonic()
        await close(one.client)
        assert time.monotonic() - start < 20  # aiohttp alone would wait for half a minute
        server.send(signal.SIGCONT)

    run(work())


def test_a_client_that_was_never_connected_closes() -> None:
    run(close(CarefulClient()))


def test_what_was_sent_before_has_been_dealt_with(server: NatsServer) -> None:
    heard: list[bytes] = []

    async def work() -> None:
        async with Connected(server) as one, Connected(server) as other:

            async def hear(message: object) -> None:
                heard.append(getattr(message, "data", b""))

            await other.client.subscribe("x", cb=hear)
            await settle(other.client, 10)
            for number in range(100):
                await one.client.publish("x", str(number).encode())
            await settle(one.client, 10)
            await settle(other.client, 10)
        assert heard == [str(number).encode() for number in range(100)]

    run(work())


def test_tasks_that_refuse_to_end_hold_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "CANCELLATIONS", 1)
    told: list[str] = []

    async def willing() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            told.append("willing")

    async def deaf(until: asyncio.Event) -> None:
        while not until.is_set():
            try:
                await until.wait()
            except asyncio.CancelledError:
                told.append("deaf")

    async def work() -> None:
        await cancel_and_wait([])
        end = asyncio.Event()
        tasks = [asyncio.ensure_future(willing()), asyncio.ensure_future(deaf(end))]
        await asyncio.sleep(0)
        await cancel_and_wait(tasks)
        assert sorted(told) == ["deaf", "willing"]
        assert [task.done() for task in tasks] == [True, False]
        end.set()
        await tasks[1]

    run(work())
