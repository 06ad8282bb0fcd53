"""Large messages in chunks, each message served on a subject of its own."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable
from typing import Callable

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from templates.common.errors import WireError
from templates.nats import codec
from templates.nats.requests import Unanswered
from templates.nats.subjects import REQUEST_PARTS, is_inbox, subject

KEPT_S = 120.0  # how long the chunks of an answer can be fetched
CHUNK_TIMEOUT_S = 10.0
MOST_ASKED = 8  # times for a chunk of a request, which has one reader: it is small to ask for

Fetch = Callable[[str, bytes, float], Awaitable[bytes]]
"""Subject, payload and seconds -> the answer."""


class ChunkStore:
    """Large messages that this process has announced, each served chunk by chunk."""

    def __init__(self, root: str, client: Callable[[], Client]) -> None:
        self._root = root
        self._client = client
        self._kept: dict[str, Subscription] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def chunked_if_large(
        self, kind: str, pool: str, raw: bytes, chunk_size: int
    ) -> AsyncIterator[bytes]:
        """Yield a payload: the message, or the announcement of its chunks, served meanwhile.

        Those of an answer stay for a while after the block: it is long over when they are fetched.
        """
        if len(raw) <= chunk_size:
            yield raw
            return
        parts = await self.put(kind, pool, raw, chunk_size)
        try:
            yield codec.write_announcement(parts)
        finally:
            if kind == REQUEST_PARTS:
                await self.remove(parts.id)

    async def put(self, kind: str, pool: str, raw: bytes, chunk_size: int) -> codec.Parts:
        """Serve a request or an answer for ``KEPT_S``, or until it is removed."""
        if len(raw) > codec.LARGEST:
            raise WireError("message", f"is larger than {codec.LARGEST} bytes")
        parts = codec.describe_parts(secrets.token_hex(16), raw, chunk_size)
        pieces = list(codec.split(raw, chunk_size))
        asked = [0] * len(pieces)

        async def serve(message: Msg) -> None:
            text = message.data[:9].decode(errors="replace")
            number = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else -1
            if not 0 <= number < len(pieces) or not is_inbox(message.reply):
                return
            asked[number] += kind == REQUEST_PARTS
            if asked[number] <= MOST_ASKED:
                await message.respond(pieces[number])

        where = subject(self._root, kind, pool, parts.id)
        self._kept[parts.id] = await self._client().subscribe(where, cb=serve)
        asyncio.get_running_loop().call_later(KEPT_S, self._expire, parts.id)
        return parts

    async def remove(self, identity: str) -> None:
        """Stop serving a message."""
        subscription = self._kept.pop(identity, None)
        if subscription is not None:
            with contextlib.suppress(NatsError, OSError):
                await subscription.unsubscribe()

    def _expire(self, identity: str) -> None:
        task = asyncio.ensure_future(self.remove(identity))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def reassemble(
    root: str, kind: str, pool: str, raw: bytes, largest: int, fetch: Fetch
) -> bytes:
    """Return the payload, or what the chunks make up that it announces: all in time, or nothing."""
    parts = codec.read_announcement(raw, largest)
    if parts is None:
        return raw
    where = subject(root, kind, pool, parts.id)
    try:
        return await asyncio.wait_for(_fetch_all(where, parts, fetch), KEPT_S)
    except asyncio.TimeoutError:
        raise Unanswered(f"not all chunks came within {KEPT_S:g} s on {where}") from None


async def _fetch_all(where: str, parts: codec.Parts, fetch: Fetch) -> bytes:
    pieces: list[bytes] = []
    for number in range(parts.pieces):
        piece = await fetch(where, str(number).encode(), CHUNK_TIMEOUT_S)
        codec.check_piece(parts, pieces, piece)
        pieces.append(piece)
    return codec.join(parts, pieces)
