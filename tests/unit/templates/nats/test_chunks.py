"""Large messages kept for whoever fetches them, on a real server: only parts, only while kept."""

from __future__ import annotations

import asyncio
import os

import pytest
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeout

from templates.common.errors import WireError
from templates.nats import chunks as parts_module
from templates.nats import codec
from templates.nats.chunks import ChunkStore
from templates.nats.client import settle
from templates.nats.subjects import ANSWER_PARTS, REQUEST_PARTS
from tests.support.nats_server import NatsServer
from tests.unit.templates.clients import Connected, run

ROOT = "interlink"


def store_of(one: Connected) -> ChunkStore:
    return ChunkStore(ROOT, lambda: one.client)


@pytest.mark.parametrize("size", [1, 999, 1000, 1001, 250_000])
@pytest.mark.parametrize("kind", [REQUEST_PARTS, ANSWER_PARTS])
def test_the_parts_make_up_the_message(server: NatsServer, size: int, kind: str) -> None:
    raw = os.urandom(size)

    async def work() -> None:
        async with Connected(server) as one, Connected(server) as other:
            announced = await store_of(one).put(kind, "p", raw, 1000)
            await settle(one.client, 10)
            where = f"{ROOT}.{kind}.p.{announced.id}"
            pieces = []
            for number in range(announced.pieces):
                answer = await other.client.request(where, str(number).encode(), timeout=10)
                pieces.append(answer.data)
            assert codec.join(announced, pieces) == raw

    run(work())


@pytest.mark.parametrize(
    "asked", [b"", b"-1", b"3", b"x", b"1e0", b"999999999", "²".encode(), b"\xff"]
)
def test_what_is_no_part_is_not_answered(server: NatsServer, asked: bytes) -> None:
    async def work() -> None:
        async with Connected(server) as one, Connected(server) as other:
            announced = await store_of(one).put(REQUEST_PARTS, "p", b"abc", 1)
            await settle(one.client, 10)
            where = f"{ROOT}.{REQUEST_PARTS}.p.{announced.id}"
            with pytest.raises(NatsTimeout):
                await other.client.request(where, asked, timeout=0.3)
            assert (await other.client.request(where, b"2", timeout=10)).data == b"c"
            assert one.complaints == []

    run(work())


def test_no_part_goes_where_no_inbox_is(server: NatsServer) -> None:
    """Who asks for a part must not be able to have us publish below the root."""

    async def work() -> None:
        async with Connected(server) as one, Connected(server) as other:
            announced = await store_of(one).put(REQUEST_PARTS, "p", b"abc", 1)
            await settle(one.client, 10)
            heard = await other.client.subscribe(f"{ROOT}.create.q")
            where = f"{ROOT}.{REQUEST_PARTS}.p.{announced.id}"
            everything = await other.client.subscribe(">")
            for reply in (f"{ROOT}.create.q", ROOT, "", "$KV.a.b", "$JS.API.INFO", "any.thing"):
                await other.client.publish(where, b"0", reply=reply)
            assert (await other.client.request(where, b"0", timeout=10)).data == b"a"
            await settle(other.client, 10)
            assert heard.pending_msgs == 0
            assert everything.pending_msgs == 6 + 2  # what was asked, and one answer

    run(work())


def test_a_part_of_a_request_is_served_so_often_and_no_more(server: NatsServer) -> None:
    """To ask costs a few bytes and the answer is large; its one reader has no need to."""

    async def work() -> None:
        async with Connected(server) as one, Connected(server) as other:
            store = store_of(one)
            request = await store.put(REQUEST_PARTS, "p", b"abc", 1)
            answer = await store.put(ANSWER_PARTS, "p", b"abc", 1)
            await settle(one.client, 10)
            heard = await other.client.subscribe("_INBOX.x.*")
            for kind, parts in ((REQUEST_PARTS, request), (ANSWER_PARTS, answer)):
                for _ in range(100):
                    where = f"{ROOT}.{kind}.p.{parts.id}"
                    await other.client.publish(where, b"0", reply=f"_INBOX.x.{kind}")
            await settle(other.client, 10)
            await settle(one.client, 10)
            await settle(other.client, 10)
            assert heard.pending_msgs == parts_module.MOST_ASKED + 100

    run(work())


@pytest.mark.parametrize(
    ("pieces", "size", "sent"),
    [
        (3, 100_000, [1_000_000]),
        (3, 100_000, [50_000, 50_000, 1_000_000]),
        (2, 100_000, [50_000, 50_001]),
        (2, 100_000, [50_000, 49_999]),
        (2, 100_000, [0]),
        (2, 100_000, [1]),
        (100_000, 100_000, [2]),
        (1, 100_000, [99_999]),
        (4, 100_000, [34_000]),
    ],
)
def test_a_part_that_does_not_fit_is_the_last_one_asked_for(
    pieces: int, size: int, sent: list[int]
) -> None:
    asked: list[bytes] = []

    async def fetch(_: str, number: bytes, __: float) -> bytes:
        asked.append(number)
        return b"x" * sent[min(int(number), len(sent) - 1)]

    parts = codec.Parts("0a", pieces, size, "0" * 64)
    announced = codec.write_announcement(parts)
    with pytest.raises(WireError, match="its parts are not what was announced"):
        asyncio.run(parts_module.reassemble(ROOT, ANSWER_PARTS, "p", announced, size, fetch))
    assert len(asked) <= len(sent)


def test_more_is_announced_than_the_kind_may_be() -> None:
    async def fetch(_: str, __: bytes, ___: float) -> bytes:
        raise AssertionError("nothing may be asked for")

    announced = codec.write_announcement(codec.Parts("0a", 2, 100_001, "0" * 64))
    with pytest.raises(WireError, match="of at most 100000 bytes"):
        asyncio.run(parts_module.reassemble(ROOT, ANSWER_PARTS, "p", announced, 100_000, fetch))


def test_what_is_removed_is_gone_and_what_expires_too(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(one: Connected, identity: str) -> None:
        while True:
            try:
                where = f"{ROOT}.{REQUEST_PARTS}.p.{identity}"
                await one.client.request(where, b"0", timeout=1)
            except NoRespondersError:
                return
            except NatsTimeout:  # asked for while it was being removed
                continue
            await asyncio.sleep(0.02)

    async def work() -> None:
        async with Connected(server) as one, Connected(server) as other:
            store = store_of(one)
            kept = await store.put(REQUEST_PARTS, "p", b"abc", 1)
            removed = await store.put(REQUEST_PARTS, "p", b"abc", 1)
            assert kept.id != removed.id
            await store.remove(removed.id)
            await store.remove(removed.id)
            await gone(other, removed.id)
            monkeypatch.setattr(parts_module, "KEPT_S", 0.2)
            brief = await store.put(REQUEST_PARTS, "p", b"abc", 1)
            await gone(other, brief.id)
            where = f"{ROOT}.{REQUEST_PARTS}.p.{kept.id}"
            assert (await other.client.request(where, b"1", timeout=10)).data == b"b"

    run(work())


def test_removing_from_a_connection_that_is_closed(server: NatsServer) -> None:
    async def work() -> None:
        async with Connected(server) as one:
            store = store_of(one)
            kept = await store.put(REQUEST_PARTS, "p", b"abc", 1)
        await store.remove(kept.id)

    run(work())


def test_a_message_that_is_too_large_is_refused(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec, "LARGEST", 3)

    async def work() -> None:
        async with Connected(server) as one:
            with pytest.raises(WireError, match="message: is larger than 3 bytes"):
                await store_of(one).put(REQUEST_PARTS, "p", b"abcd", 1)

    run(work())
