"""Reader of a container's log, which is fetched from its site window by window.

A window is requested while the one before it is written to the client, so that neither waits for
the other and at most two are in memory: a client that stops reading stops the site.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple, Optional

from plugin_server.interlink.log_options import LogOptions
from plugin_server.nats.gateway import Gateway
from templates.common.errors import WireError
from templates.nats import codec
from templates.nats.requests import LinkError, Unanswered
from templates.nats.subjects import SMALL
from templates.protocol.messages import (
    LOG_DATA,
    UNKNOWN,
    LogEnd,
    LogRequest,
    Refusal,
    read_log_end,
    read_refusal,
)

WINDOW = 4 * 1024 * 1024
FOLLOW_WINDOW = 512 * 1024
WAIT_S = 5  # how long a site may wait for new output, when following
MESSAGE_S = 5.0  # between two messages of a window, beyond that
LONGEST_S = WAIT_S + 6 * MESSAGE_S  # until a window is complete or has failed
PAUSE_S = 1.0  # before a retry
PATIENCE_S = 10.0  # of retries, for a log that is not followed


class Window(NamedTuple):
    """Part of a log."""

    pieces: list[bytes]
    end: LogEnd


class LogReader:
    """Reader of one log; lives in the loop's thread."""

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
        self._prefetch: Optional[asyncio.Task[Window]] = None
        self._failing_since: Optional[float] = None
        self.is_over = False

    async def next_window(self) -> list[bytes]:
        """Return the next part of the log, which may be empty; prefetch the one after it."""
        try:
            window = await (self._prefetch or asyncio.ensure_future(self._fetch()))
        except (LinkError, WireError) as error:
            self._prefetch = None
            await self._wait_after(error)
            return []
        self._failing_since = None
        self._request = self._request._replace(cursor=window.end.cursor)
        self.is_over = window.end.over
        self._prefetch = None if self.is_over else asyncio.ensure_future(self._fetch())
        return window.pieces

    async def _wait_after(self, error: Exception) -> None:
        """Wait before a retry; give up after ``PATIENCE_S`` unless the log is followed."""
        now = asyncio.get_running_loop().time()
        self._failing_since = self._failing_since or now
        if isinstance(error, _LogRefused) and not error.refusal.retry:
            self.is_over = True
            if error.refusal.code != UNKNOWN:
                raise error
            return
        if not self._options.follow and now - self._failing_since >= PATIENCE_S:
            raise Unanswered(f"pool {self._pool}: {error}")
        await asyncio.sleep(PAUSE_S)

    async def _fetch(self) -> Window:
        """Fetch a whole window."""
        async with self._gateway.log_stream(2 * self._window) as (ask, next_message):
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
        """Stop reading."""
        self.is_over = True
        if self._prefetch is not None:
            self._prefetch.cancel()
            await asyncio.gather(self._prefetch, return_exceptions=True)


class _LogRefused(LinkError):
    """Rejection of a log request by the site."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def _read_end(message: bytes) -> LogEnd:
    raw = codec.decode(message, SMALL)
    refusal = read_refusal(raw)
    if refusal is not None:
        raise _LogRefused(refusal)
    return read_log_end(raw)
