"""Log requests: find the pool that has the job, and stream its container's log."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Generator, Iterator
from typing import Callable

from plugin_server.common.errors import Busy, Refused
from plugin_server.interlink.log_options import LogOptions, read_log_options
from plugin_server.nats.bridge import Bridge, BridgeError
from plugin_server.nats.gateway import Gateway
from plugin_server.nats.log_reader import LONGEST_S, LogReader
from plugin_server.pods.job_lookup import JobLookup
from plugin_server.state.job_table import JobTable
from plugin_server.state.pools import Pools
from templates.nats.requests import LinkError

logger = logging.getLogger(__name__)

SEARCH_PAUSE_S = 0.2
SEARCH_S = 10.0  # for the pool of a job that was not published yet
CLOSE_S = 5.0


class Logs:
    """Log requests; called by any number of threads."""

    def __init__(
        self,
        readers: int,
        bridge: Bridge,
        gateway: Gateway,
        table: JobTable,
        pools: Pools,
        lookup: JobLookup,
    ) -> None:
        self._busy_message = f"{readers} logs are being read; try it later"
        self._bridge = bridge
        self._gateway = gateway
        self._table = table
        self._pools = pools
        self._lookup = lookup
        self._slots = threading.BoundedSemaphore(readers)

    def open(self, body: bytes, is_read: Callable[[], bool]) -> Iterator[bytes]:
        """Stream a log, after an empty piece so that headers are sent at once.

        It ends when ``is_read`` returns False. Raises ``Refused`` before anything is sent.
        """
        options = read_log_options(body, int(time.time() * 1000))
        pool = self._table.home(options.uid) or self._search(options)
        if not pool:
            alive = ", ".join(self._pools.alive()) or "none"
            raise Refused(404, f"no pool is known to have pod {options.uid} (alive: {alive})")
        return _limit(self._read(pool, options, is_read), options.limit)

    def _search(self, options: LogOptions) -> str:
        """Return the only pool that has a job, of which it is not known where it was sent.

        It may take as long as a log, and counts as one that is being read.
        """
        if not self._slots.acquire(blocking=False):
            raise Busy(self._busy_message)
        try:
            return self._query_all(options)
        finally:
            self._slots.release()

    def _query_all(self, options: LogOptions) -> str:
        end = time.monotonic() + SEARCH_S
        while True:
            alive = self._pools.alive()
            replies = [self._lookup.look_up(pool, [options.job]) for pool in alive]
            if (replies and all(replies)) or time.monotonic() > end:
                return self._table.pool_of(options.uid)
            time.sleep(SEARCH_PAUSE_S)

    def _read(
        self, pool: str, options: LogOptions, is_read: Callable[[], bool]
    ) -> Generator[bytes, None, None]:
        yield b""
        if not self._slots.acquire(blocking=False):
            yield f"[interlink: {self._busy_message}]\n".encode()
            return
        try:
            entry = self._table.find(options.uid, pool)
            job = entry.status.job if entry is not None else options.job
            yield from self._windows(LogReader(self._gateway, pool, job, options), is_read)
        finally:
            self._slots.release()

    def _windows(
        self, reader: LogReader, is_read: Callable[[], bool]
    ) -> Generator[bytes, None, None]:
        try:
            while not reader.is_over and is_read():
                pieces = self._bridge.call(reader.next_window(), LONGEST_S)
                yield from pieces
        except (BridgeError, LinkError) as error:
            yield f"[interlink: the rest of the log cannot be read now: {error}]\n".encode()
        finally:
            with contextlib.suppress(BridgeError):
                self._bridge.call(reader.close(), CLOSE_S)


def _limit(pieces: Generator[bytes, None, None], limit: int) -> Generator[bytes, None, None]:
    """Yield at most ``limit`` bytes; 0: all."""
    if not limit:
        yield from pieces
        return
    remaining = limit
    with contextlib.closing(pieces):
        for piece in pieces:
            yield piece[:remaining]
            remaining -= len(piece[:remaining])
            if remaining <= 0:
                break
