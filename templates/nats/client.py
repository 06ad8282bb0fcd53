"""Opening and closing one client of nats-py, so that neither hangs, leaks or hides its reason."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Iterable
from typing import Any, Callable, TypeVar

from nats.aio.client import Client
from nats.errors import Error as NatsError

from templates.nats.options import LinkSettings, connect_options
from templates.nats.requests import reason_of

CONNECT_TIMEOUT_S = 4  # a lost SYN is sent again after 1 and 3 s: longer waits gain nothing
CLOSE_TIMEOUT_S = 2
CANCELLATIONS = 5

Made = TypeVar("Made")


class CarefulClient(Client):
    """Client that sends no credentials to a server that should offer TLS and does not.

    nats-py takes the scheme tls:// as optional: without this, a man in the middle could get the
    password in plain text.
    """

    def _connect_command(self) -> bytes:
        server = self._current_server
        if server is None or server.uri.scheme != "tls" or self._server_info.get("tls_required"):
            return super()._connect_command()
        raise NatsError("the server offers no TLS")


async def open_client(
    client: Client,
    settings: LinkSettings,
    make: Callable[[Client], Awaitable[Made]],
    on_error: Callable[[Exception], None],
    on_closed: Callable[[], None],
) -> Made:
    """Connect once and subscribe with ``make``; raise the error of the server or the network.

    A subscription that the server does not permit is an error like any other: nats-py only
    mentions it in passing.
    """
    options = connect_options(settings)
    failures: list[Exception] = []

    async def keep_error(error: Exception) -> None:
        failures.append(error)
        on_error(error)

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
    except Exception as error:  # noqa: BLE001 (a seed that is none, a proxy's HTTP 502, ...)
        raise _foreseen(failures[-1] if failures else error) from None
    if failures:
        raise _foreseen(failures[-1])
    return made


def _foreseen(error: Exception) -> Exception:
    """Return an error that callers expect; of others only aiohttp's never hold a secret."""
    if isinstance(error, (NatsError, OSError, asyncio.TimeoutError)):
        return error
    kind = type(error)
    if kind.__module__.partition(".")[0] == "aiohttp":
        return ConnectionError(f"{kind.__name__}: {reason_of(error)}")
    return ConnectionError(f"the client cannot connect ({kind.__name__})")


async def settle(client: Client, timeout_s: int) -> None:
    """Wait until the server has dealt with all that was sent before.

    nats-py writes a ping ahead of what still waits to be written: only the second one comes after.
    """
    await client.flush(timeout=timeout_s)
    await client.flush(timeout=timeout_s)


async def close(client: Client) -> None:
    """Close without waiting for a socket that may never answer.

    Errors of closing are ignored; nats-py fails on assertions, too, when its client
    was never connected.
    """
    transport = getattr(client, "_transport", None)
    websocket, writer = getattr(transport, "_ws", None), getattr(transport, "_io_writer", None)
    holders = (getattr(websocket, "_conn", None), writer)
    ends = [getattr(holder, "transport", None) for holder in holders]
    with contextlib.suppress(Exception):
        await asyncio.wait_for(client.close(), CLOSE_TIMEOUT_S)
    # nats-py forgets the HTTP session of a WebSocket that could not be opened.
    session = getattr(transport, "_client", None)
    if session is not None:
        with contextlib.suppress(Exception):
            await asyncio.wait_for(session.close(), CLOSE_TIMEOUT_S)
    for end in filter(None, ends):
        # Else it waits half a minute for a frozen server's farewell. One that has ended already
        # makes Python 3.11.2 fail on something of its own.
        with contextlib.suppress(AttributeError):
            end.abort()


async def cancel_and_wait(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Return when these have ended, or after some time with those that refuse.

    Before Python 3.12 asyncio.wait_for loses a cancellation that comes when it has just finished,
    so once may not be enough.
    """
    left = set(tasks)
    for _ in range(CANCELLATIONS):
        if not left:
            return
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=1)


def server_of(client: Client) -> str:
    """Return the host and port that a client is connected to, without credentials."""
    url = client.connected_url
    return url.netloc.rpartition("@")[2] if url is not None else "?"
