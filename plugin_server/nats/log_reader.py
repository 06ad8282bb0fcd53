"""Reader of a container's log, which is fetched from its site window by window.

A window is requested while the one before it is written to the client, so that neither waits for
the other and at most two are in memory: a client that stops reading stops the site. The more logs
are read, the smaller are their windows. A site that sends hardly anything is asked less often.
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
WINDOWS = 8 * 1024 * 1024  # the nth reader has at most one nth of it: 64 hold 70 MiB together
SMALLEST_WINDOW = 128 * 1024  # with less, most of a window with times would stay empty
TIMES = 9 / 8  # by which times may make a window longer than the site reckons
SMALLEST_MESSAGE = 1024  # but for the first one of a window
LARGEST_CURSOR = 1024
WAIT_S = 5  # how long a site may wait for new output, when following
MESSAGE_S = 5.0  # between two messages of a window, beyond that
FIRST_PAUSE_S = 0.25  # after a window with little in it, and twice as long after each empty one
LONGEST_PAUSE_S = 5.0
MOST_EMPTY = 20  # windows in a row that come before the site has waited for new output
LONGEST_S = LONGEST_PAUSE_S + WAIT_S + 6 * MESSAGE_S  # until a window is complete or has failed
PAUSE_S = 1.0  # before a retry
PATIENCE_S = 10.0  # of retries, for a log that is not followed


class Window(NamedTuple):
    """Part of a log."""

    pieces: list[bytes]
    end: LogEnd
    took_s: float


class LogReader:
    """Reader of one log, the nth that is being read; lives in the loop's thread."""

    def __init__(
        self, gateway: Gateway, pool: str, job: str, options: LogOptions, readers: int
    ) -> None:
        self._gateway = gateway
        self._pool = pool
        self._options = options
        share = max(WINDOWS // readers, SMALLEST_WINDOW)
        self._window = min(FOLLOW_WINDOW if options.follow else WINDOW, share)
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
        self._empty = 0
        self.is_over = False

    async def next_window(self) -> list[bytes]:
        """Return the next part of the log, which may be empty; prefetch the one after it."""
        try:
            window = await (self._prefetch or asyncio.ensure_future(self._fetch(0)))
        except (LinkError, WireError) as error:
            self._prefetch = None
            await self._wait_after(error)
            return []
        self._failing_since = None
        self._request = self._request._replace(cursor=window.end.cursor)
        self.is_over = window.end.over
        self._prefetch = None
        if not self.is_over:
            self._prefetch = asyncio.ensure_future(self._fetch(self._pause_after(window)))
        return window.pieces

    def _pause_after(self, window: Window) -> float:
        """Return how long the site is left alone; raise if it never sends anything.

        A site answers a follower when there is more to read, or when it has waited for that.
        """
        has_waited = 0 < self._request.wait_s <= 2 * window.took_s
        self._empty = 0 if window.end.sent or has_waited else self._empty + 1
        if self._empty > MOST_EMPTY:
            raise Unanswered(f"pool {self._pool} sends nothing, and does not end it")
        if window.end.sent >= self._window // 2:
            return 0.0
        return min(FIRST_PAUSE_S * (1 << self._empty), LONGEST_PAUSE_S)

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

    async def _fetch(self, pause_s: float) -> Window:
        """Fetch a whole window."""
        await asyncio.sleep(pause_s)
        most_bytes = int(self._window * TIMES)
        most_messages = self._window // SMALLEST_MESSAGE + 2
        asked_s = asyncio.get_running_loop().time()
        waiting = (2 * self._window, most_messages)
        async with self._gateway.log_stream(*waiting) as (ask, next_message):
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
                if size > most_bytes or len(pieces) > most_messages:
                    raise WireError("log", "is more than was asked for")
        end = _read_end(message)
        if end.sent != size:
            raise Unanswered("a part of the log was lost on the way")
        return Window(pieces, end, asyncio.get_running_loop().time() - asked_s)

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
    end = read_log_end(raw)
    if len(end.cursor) > LARGEST_CURSOR:
        raise WireError("log.cursor", f"must be of at most {LARGEST_CURSOR} characters")
    return end
