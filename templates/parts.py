"""Large messages on their way: each on a subject of its own until it was fetched."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from typing import Callable

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from templates import wire
from templates.errors import WireError
from templates.subjects import is_inbox, subject

KEPT_S = 120.0  # how long an answer can be fetched that nobody has fetched yet


class PartsShelf:
    """What this process has announced and keeps ready for whoever asks, part by part."""

    def __init__(self, root: str, client: Callable[[], Client]) -> None:
        self._root = root
        self._client = client
        self._kept: dict[str, Subscription] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def put(self, kind: str, pool: str, raw: bytes, part_size: int) -> wire.Parts:
        """Keep a request or an answer for as long as ``KEPT_S``, or until it is removed."""
        if len(raw) > wire.LARGEST:
            raise WireError("message", f"is larger than {wire.LARGEST} bytes")
        parts = wire.parts_of(secrets.token_hex(16), raw, part_size)
        pieces = list(wire.slices(raw, part_size))

        async def give(message: Msg) -> None:
            asked = message.data.decode(errors="replace")
            known = asked.isascii() and asked.isdigit() and len(asked) < 9
            if known and int(asked) < len(pieces) and is_inbox(self._root, message.reply):
                await message.respond(pieces[int(asked)])

        where = subject(self._root, kind, pool, parts.id)
        self._kept[parts.id] = await self._client().subscribe(where, cb=give)
        asyncio.get_running_loop().call_later(KEPT_S, self._expire, parts.id)
        return parts

    async def remove(self, identity: str) -> None:
        """Forget a message."""
        subscription = self._kept.pop(identity, None)
        if subscription is not None:
            with contextlib.suppress(NatsError, OSError):
                await subscription.unsubscribe()

    def _expire(self, identity: str) -> None:
        task = asyncio.ensure_future(self.remove(identity))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
