"""What ``/getLogs`` does: a container's log, pulled from its site window by window.

A window is asked for while the one before it is written to the client, so that neither waits for
the other and never more than two of them are in memory: a client that stops reading stops the site.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Generator, Iterator
from typing import Callable, NamedTuple, Optional

from plugin_server.common.errors import Busy, Refused
from plugin_server.interlink import log_options
from plugin_server.interlink.log_options import LogOptions
from plugin_server.nats.bridge import Bridge, BridgeError
from plugin_server.nats.gateway import Gateway
from plugin_server.pods.job_lookup import Lookups
from plugin_server.state.job_table import StatesTable
from plugin_server.state.pools import Pools
from templates.common.errors import WireError
from templates.nats import codec
from templates.nats.requests import LinkError, Unanswered
from templates.protocol.messages import (
    LOG_DATA,
    UNKNOWN,
    LogEnd,
    LogRequest,
    Refusal,
    read_log_end,
    read_refusal,
)

logger = logging.getLogger(__name__)

WINDOW = 4 * 1024 * 1024
FOLLOW_WINDOW = 512 * 1024
WAIT_S = 5  # how long a site may wait for something to say, when following
MESSAGE_S = 5.0  # between two messages of a window, beyond that
SEARCH_PAUSE_S = 0.2
PAUSE_S = 1.0  # before a site is asked again
PATIENCE_S = 10.0  # with a site that does not answer, for a log that is not followed


class Window(NamedTuple):
    """A part of a log."""

    pieces: list[bytes]
    end: LogEnd


class Logs:
    """Logs of containers; called by any number of threads."""

    def __init__(
        self,
        readers: int,
        bridge: Bridge,
        gateway: Gateway,
        table: StatesTable,
        pools: Pools,
        lookups: Lookups,
    ) -> None:
        self._crowded = f"{readers} logs are being read; try it later"
        self._bridge = bridge
        self._gateway = gateway
        self._table = table
        self._pools = pools
        self._lookups = lookups
        self._room = threading.BoundedSemaphore(readers)

    def open(self, body: bytes, is_read: Callable[[], bool]) -> Iterator[bytes]:
        """The log as it comes, beginning with nothing so that headers are sent at once.

        It ends when ``is_read`` says that nobody is there any more. Raises ``Refused`` before
        anything is sent.
        """
        options = log_options.read(body, int(time.time() * 1000))
        pool = self._table.pool_of(options.uid) or self._search(options)
        if not pool:
            alive = ", ".join(self._pools.alive()) or "none"
            raise Refused(404, f"no job of pod {options.uid} is known (pools alive: {alive})")
        return _limited(self._read(pool, options, is_read), options.limit)

    def _search(self, options: LogOptions) -> str:
        """The pool of a job that nobody has spoken of yet; empty if every site has denied it.

        It may take as long as a log, and is one of those that are read at once.
        """
        if not self._room.acquire(blocking=False):
            raise Busy(self._crowded)
        try:
            return self._ask_all(options)
        finally:
            self._room.release()

    def _ask_all(self, options: LogOptions) -> str:
        end = time.monotonic() + PATIENCE_S
        while True:
            alive = self._pools.alive()
            said = [self._lookups.look_up(pool, [options.job]) for pool in alive]
            pool = self._table.pool_of(options.uid)
            if pool or (said and all(said)) or time.monotonic() > end:
                return pool
            time.sleep(SEARCH_PAUSE_S)

    def _read(
        self, pool: str, options: LogOptions, is_read: Callable[[], bool]
    ) -> Generator[bytes, None, None]:
        yield b""
        if not self._room.acquire(blocking=False):
            yield f"[interlink: {self._crowded}]\n".encode()
            return
        try:
            entry = self._table.find(options.uid, pool)
            job = entry.status.job if entry is not None else options.job
            yield from self._windows(LogReader(self._gateway, pool, job, options), is_read)
        finally:
            self._room.release()

    def _windows(
        self, reader: LogReader, is_read: Callable[[], bool]
    ) -> Generator[bytes, None, None]:
        try:
            while not reader.over and is_read():
                pieces = self._bridge.call(reader.next_window(), WAIT_S + 6 * MESSAGE_S)
                yield from pieces
        except (BridgeError, LinkError) as error:
            yield f"[interlink: the rest of the log cannot be read now: {error}]\n".encode()
        finally:
            with contextlib.suppress(BridgeError):
                self._bridge.call(reader.close(), MESSAGE_S)


class LogReader:
    """One log being read; lives in the loop's thread."""

    def __init__(self, gateway: Gateway, pool: str, job: str, options: LogOptions) -> None:
        self._gateway = gateway
        self._pool = pool
        self._options = options
        self._window = FOLLOW_WINDOW if options.follow else WINDOW
        self._request = LogRequest(
            job=job,
            container=options.container,
            cursor="",
            window_bytes=self._window,
            wait_s=WAIT_S if options.follow else 0,
            follow=options.follow,
            previous=options.previous,
            timestamps=options.timestamps,
            tail=options.tail,
            since_ms=options.since_ms,
        )
        self._ahead: Optional[asyncio.Task[Window]] = None
        self._failing_since: Optional[float] = None
        self.over = False

    async def next_window(self) -> list[bytes]:
        """The next part of the log, perhaps an empty one; what comes after it is on its way."""
        try:
            window = await (self._ahead or asyncio.ensure_future(self._fetch()))
        except (LinkError, WireError) as error:
            self._ahead = None
            await self._wait_after(error)
            return []
        self._failing_since = None
        self._request = self._request._replace(cursor=window.end.cursor)
        self.over = window.end.over
        self._ahead = None if self.over else asyncio.ensure_future(self._fetch())
        return window.pieces

    async def _wait_after(self, error: Exception) -> None:
        """A follower waits for its site to return; others give up after some time."""
        now = asyncio.get_running_loop().time()
        self._failing_since = self._failing_since or now
        if isinstance(error, _LogRefused) and not error.refusal.retry:
            self.over = True
            if error.refusal.code != UNKNOWN:
                raise error
            return
        if not self._options.follow and now - self._failing_since >= PATIENCE_S:
            raise Unanswered(f"pool {self._pool}: {error}")
        await asyncio.sleep(PAUSE_S)

    async def _fetch(self) -> Window:
        """One window, all of it."""
        async with self._gateway.log_stream() as (ask, next_message):
            await ask(self._pool, self._request)
            pieces: list[bytes] = []
            size = 0
            wait_s = self._request.wait_s + MESSAGE_S
            while True:
                message = await next_message(wait_s)
                wait_s = MESSAGE_S
                if message[:1] != LOG_DATA:
                    break
                pieces.append(message[1:])
                size += len(message) - 1
                if size > 2 * self._window:
                    raise WireError("log", "is more than was asked for")
        end = _read_end(message)
        if end.sent != size:
            raise Unanswered("a part of the log was lost on the way")
        return Window(pieces, end)

    async def close(self) -> None:
        """Nobody reads any more."""
        self.over = True
        if self._ahead is not None:
            self._ahead.cancel()
            await asyncio.gather(self._ahead, return_exceptions=True)


class _LogRefused(LinkError):
    """The site says why there is no log."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def _read_end(message: bytes) -> LogEnd:
    raw = codec.decode(message)
    refusal = read_refusal(raw)
    if refusal is not None:
        raise _LogRefused(refusal)
    return read_log_end(raw)


def _limited(pieces: Generator[bytes, None, None], limit: int) -> Generator[bytes, None, None]:
    """At most so many bytes; 0: all of them."""
    if not limit:
        yield from pieces
        return
    left = limit
    with contextlib.closing(pieces):
        for piece in pieces:
            yield piece[:left]
            left -= len(piece[:left])
            if left <= 0:
                break
