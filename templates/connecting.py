"""Opening and closing one client of nats-py, so that neither hangs, leaks or hides its reason."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import Callable, TypeVar

from nats.aio.client import Client
from nats.errors import Error as NatsError

from templates.asking import reason_of
from templates.link_settings import LinkSettings, connect_options

CONNECT_TIMEOUT_S = 4  # a lost SYN is sent again after 1 and 3 s: longer waits gain nothing
CLOSE_TIMEOUT_S = 2

Made = TypeVar("Made")


async def opened(
    client: Client,
    settings: LinkSettings,
    make: Callable[[Client], Awaitable[Made]],
    complain: Callable[[Exception], None],
    on_closed: Callable[[], None],
) -> Made:
    """Connect once and subscribe with ``make``; raises what the server or the network said.

    A subscription that the server does not permit is an error like any other: nats-py only
    mentions it in passing.
    """
    options = connect_options(settings)
    failures: list[Exception] = []

    async def keep_error(error: Exception) -> None:
        failures.append(error)
        complain(error)

    async def closed() -> None:
        on_closed()

    try:
        await client.connect(
            **options,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=CONNECT_TIMEOUT_S,
            error_cb=keep_error,
            closed_cb=closed,
            disconnected_cb=closed,
        )
        made = await make(client)
        await settle(client, CONNECT_TIMEOUT_S)
    except (NatsError, OSError, asyncio.TimeoutError):
        if failures:
            raise failures[-1] from None
        raise
    except Exception as error:  # noqa: BLE001 (a seed that is none, a proxy's HTTP 502, ...)
        raise ConnectionError(_unforeseen(error)) from None
    if failures:
        raise failures[-1]
    return made


def _unforeseen(error: Exception) -> str:
    """What libraries below nats-py raise; only the words of aiohttp never hold a secret."""
    kind = type(error)
    if kind.__module__.partition(".")[0] == "aiohttp":
        return f"{kind.__name__}: {reason_of(error)}"
    return f"the client cannot connect ({kind.__name__})"


async def settle(client: Client, timeout_s: int) -> None:
    """Wait until the server has dealt with all that was sent before.

    nats-py writes a ping ahead of what still waits to be written: only the second one comes after.
    """
    await client.flush(timeout=timeout_s)
    await client.flush(timeout=timeout_s)


async def close(client: Client) -> None:
    """Close without waiting for a socket that may never answer."""
    with contextlib.suppress(NatsError, OSError, asyncio.TimeoutError):
        await asyncio.wait_for(client.close(), CLOSE_TIMEOUT_S)
    # nats-py forgets the HTTP session of a WebSocket that could not be opened.
    session = getattr(getattr(client, "_transport", None), "_client", None)
    if session is not None:
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            await asyncio.wait_for(session.close(), CLOSE_TIMEOUT_S)


def server_of(client: Client) -> str:
    """Host and port that it is connected to, without credentials."""
    url = client.connected_url
    return url.netloc.rpartition("@")[2] if url is not None else "?"
