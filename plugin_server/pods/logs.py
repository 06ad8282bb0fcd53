"""Log requests: which pool has the job, and its container's log as it comes."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Generator, Iterator
from typing import Callable

from plugin_server.common.errors import Busy, Refused
from plugin_server.interlink import log_options
from plugin_server.interlink.log_options import LogOptions
from plugin_server.nats.bridge import Bridge, BridgeError
from plugin_server.nats.gateway import Gateway
from plugin_server.nats.log_reader import LONGEST_S, LogReader
from plugin_server.pods.job_lookup import Lookups
from plugin_server.state.job_table import StatesTable
from plugin_server.state.pools import Pools
from templates.nats.requests import LinkError

logger = logging.getLogger(__name__)

SEARCH_PAUSE_S = 0.2
SEARCH_S = 10.0  # for the pool of a job that nobody has published yet
CLOSE_S = 5.0


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
        end = time.monotonic() + SEARCH_S
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
                pieces = self._bridge.call(reader.next_window(), LONGEST_S)
                yield from pieces
        except (BridgeError, LinkError) as error:
            yield f"[interlink: the rest of the log cannot be read now: {error}]\n".encode()
        finally:
            with contextlib.suppress(BridgeError):
                self._bridge.call(reader.close(), CLOSE_S)


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
