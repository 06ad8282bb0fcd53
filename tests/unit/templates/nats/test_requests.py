"""Questions on a real connection: the four ways in which they end are told from each other."""

from __future__ import annotations

import asyncio
import signal

import pytest
from nats.aio.msg import Msg

from templates.nats.client import settle
from templates.nats.requests import (
    NoResponders,
    NotConnected,
    Requester,
    Unanswered,
    next_message,
    reason_of,
)
from tests.support.nats_server import NatsServer
from tests.unit.templates.clients import Connected, run


async def echo(message: Msg) -> None:
    await message.respond(message.data.upper())


def test_answers_come_to_who_has_asked(server: NatsServer) -> None:
    async def work() -> None:
        async with Connected(server) as one, Connected(server) as other:
            await other.client.subscribe("where", cb=echo)
            await settle(other.client, 10)
            requester = await Requester.on(one.client)
            words = [f"word {number}" for number in range(100)]
            asked = [requester.ask("where", word.encode(), 10) for word in words]
            answers = await asyncio.gather(*asked)
            said = [answer.payload.decode() for answer in answers]
            assert said == [word.upper() for word in words]
            assert requester._pending == {}

    run(work())


def test_nobody_there_nobody_answers_and_a_late_answer(server: NatsServer) -> None:
    heard: list[Msg] = []

    async def keep(message: Msg) -> None:
        heard.append(message)

    async def work() -> None:
        async with Connected(server) as one:
            requester = await Requester.on(one.client)
            with pytest.raises(NoResponders):
                await requester.ask("nobody", b"", 10)
            await one.client.subscribe("mute", cb=keep)
            with pytest.raises(Unanswered, match=r"no answer within 0\.2 s on mute"):
                await requester.ask("mute", b"", 0.2)
            await heard[0].respond(b"late")  # which nobody waits for any more
            await one.client.subscribe("where", cb=echo)
            assert (await requester.ask("where", b"next", 10)).payload == b"NEXT"
            assert requester._pending == {}

    run(work())


def test_two_answers_are_one(server: NatsServer) -> None:
    async def twice(message: Msg) -> None:
        await message.respond(b"one")
        await message.respond(b"two")

    async def work() -> None:
        async with Connected(server) as one:
            requester = await Requester.on(one.client)
            await one.client.subscribe("where", cb=twice)
            answers = [await requester.ask("where", b"", 10) for _ in range(3)]
            assert answers == [(b"one", {})] * 3
            assert one.complaints == []

    run(work())


def test_giving_up_ends_what_waits_and_nothing_that_is_answered(server: NatsServer) -> None:
    async def work() -> None:
        async with Connected(server) as one:
            requester = await Requester.on(one.client)
            arrived = await one.client.subscribe("mute")
            waiting = asyncio.ensure_future(requester.ask("mute", b"", 30))
            await arrived.next_msg(10)
            requester.give_up()
            requester.give_up()
            with pytest.raises(Unanswered, match="the connection to NATS broke"):
                await waiting

    run(work())


def test_a_closed_connection_takes_no_question(server: NatsServer) -> None:
    async def work() -> None:
        async with Connected(server) as one:
            requester = await Requester.on(one.client)
        with pytest.raises(NotConnected):
            await requester.ask("where", b"", 10)
        assert requester._pending == {}

    run(work())


def test_the_next_of_many_messages(server: NatsServer) -> None:
    async def work() -> None:
        async with Connected(server) as one:
            many = await one.client.subscribe("many")
            broken = asyncio.Event()
            await one.client.publish("many", b"first")
            assert await next_message(many, broken, 10) == b"first"
            with pytest.raises(Unanswered, match=r"nothing came within 0\.1 s"):
                await next_message(many, broken, 0.1)
            await one.client.publish("nobody", b"", reply="many")
            with pytest.raises(NoResponders):
                await next_message(many, broken, 10)
            waiting = asyncio.ensure_future(next_message(many, broken, 30))
            await asyncio.sleep(0)
            broken.set()
            with pytest.raises(Unanswered, match="the connection to NATS broke"):
                await waiting

    run(work())


def test_a_stream_on_a_connection_that_was_closed(server: NatsServer) -> None:
    async def work() -> None:
        async with Connected(server) as one:
            many = await one.client.subscribe("many")
            waiting = asyncio.ensure_future(next_message(many, asyncio.Event(), 30))
            await asyncio.sleep(0)
            server.send(signal.SIGKILL)
            await one.client.close()
            with pytest.raises(Unanswered):
                await waiting

    run(work())


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError("two\nlines"), "two lines"),
        (OSError(), "OSError"),
        (OSError("Cannot connect to host x:443 ssl:<ssl.SSLContext object at 0x7f> [refused]"),
         "Cannot connect to host x:443 [refused]"),
        (OSError("Cannot connect to host x:443 ssl:default [refused]"),
         "Cannot connect to host x:443 [refused]"),
    ],
)  # fmt: skip
def test_the_reason_of_an_error_is_one_line_without_addresses(error: OSError, words: str) -> None:
    assert reason_of(error) == words
