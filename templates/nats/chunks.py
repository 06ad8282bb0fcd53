"""Large messages in chunks, each message served on a subject of its own."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable
from typing import Any, Callable

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from templates.common.errors import WireError
from templates.nats import codec
from templates.nats.subjects import REQUEST_PARTS, is_inbox, subject

KEPT_S = 120.0  # how long the chunks of an answer can be fetched
CHUNK_TIMEOUT_S = 10.0

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

        async def serve(message: Msg) -> None:
            number = message.data.decode(errors="replace")
            is_number = number.isascii() and number.isdigit() and len(number) < 9
            if is_number and int(number) < len(pieces) and is_inbox(self._root, message.reply):
                await message.respond(pieces[int(number)])

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


async def reassemble(root: str, kind: str, pool: str, raw: bytes, fetch: Fetch) -> dict[str, Any]:
    """Return the message in a payload, fetched in chunks if it announces them."""
    message = codec.decode(raw)
    parts = codec.read_announcement(message)
    if parts is None:
        return message
    where = subject(root, kind, pool, parts.id)
    pieces = [
        await fetch(where, str(number).encode(), CHUNK_TIMEOUT_S) for number in range(parts.pieces)
    ]
    return codec.decode(codec.join(parts, pieces))
