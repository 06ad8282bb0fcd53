"""Bare clients of a real nats-server, for the modules beneath the link."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path

from nats.aio.client import Client

from templates.nats.client import CarefulClient, close, open_client
from templates.nats.options import LinkSettings
from tests.support.nats_server import NatsServer


def run(work: Awaitable[None]) -> None:
    """In a loop of its own, for not too long."""

    async def bounded() -> None:
        await asyncio.wait_for(work, 60)

    asyncio.run(bounded())


async def nothing(_: Client) -> None:
    """What needs no subscription."""


class Connected:
    """A client from ``open_client`` to ``close``, with its errors and how often it was closed."""

    def __init__(self, server: NatsServer, **settings: str) -> None:
        self.settings = LinkSettings((server.url,))._replace(**settings)  # type: ignore[arg-type]
        self.client = CarefulClient()
        self.complaints: list[Exception] = []
        self.closed = 0

    def _count(self) -> None:
        self.closed += 1

    async def __aenter__(self) -> Connected:
        try:
            await open_client(
                self.client, self.settings, nothing, self.complaints.append, self._count
            )
        except BaseException:
            await close(self.client)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await close(self.client)


def user(folder: Path, **permissions: object) -> tuple[dict[str, object], dict[str, str]]:
    """A server's setting for one user with a password, and the client's settings for being it."""
    (folder / "password").write_text("x")
    known = {"user": "me", "password": "x", "permissions": permissions}
    mine = {"user": "me", "password_file": str(folder / "password")}
    return {"authorization": {"users": [known]}}, mine
