"""Log requests: find the pool that has the job, and stream its container's log."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Generator, Iterator
from typing import Protocol

from plugin_server.common.errors import Busy, Refused
from plugin_server.interlink.log_options import LogOptions, read_log_options
from plugin_server.nats.bridge import Bridge, BridgeError
from plugin_server.nats.gateway import Gateway
from plugin_server.nats.log_reader import LONGEST_S, LogReader
from plugin_server.pods.job_lookup import JobLookup
from plugin_server.pods.log_shares import LogShares
from plugin_server.state.job_table import JobTable
from plugin_server.state.pools import Pools
from templates.nats.requests import LinkError

logger = logging.getLogger(__name__)

SEARCH_PAUSE_S = 0.2
SEARCH_S = 10.0  # for the pool of a job that was not published yet
CLOSE_S = 5.0
PIECE = 32 * 1024  # written at once: a client that has room for some has room for so much
UNREAD = b"[interlink: the rest of the log is left out: nobody has read on for a minute]\n"


class Recipient(Protocol):
    """Client that a log is written to."""

    def is_connected(self) -> bool:
        """Return whether it still reads."""

    def takes_more(self) -> bool:
        """Wait until it has room for a piece; return False if it does not read on."""


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
        self._shares = LogShares(readers)
        self._bridge = bridge
        self._gateway = gateway
        self._table = table
        self._pools = pools
        self._lookup = lookup

    def open(self, body: bytes, client: Recipient) -> Iterator[bytes]:
        """Stream a log, after an empty piece so that headers are sent at once.

        It ends when the client does not read any more. Raises ``Refused`` before anything is sent.
        """
        options = read_log_options(body, int(time.time() * 1000))
        pool = self._table.home(options.uid) or self._search(options)
        alive = self._pools.alive()
        known = ", ".join(alive) or "none"
        if not pool:
            raise Refused(404, f"no pool is known to have pod {options.uid} (alive: {known})")
        if pool not in alive and self._table.find(options.uid, pool) is None:
            reason = f"pool {pool}, where pod {options.uid} should be, is silent (alive: {known})"
            raise Refused(404, reason)
        return _limit(self._read(pool, options, client), options.limit)

    def _search(self, options: LogOptions) -> str:
        """Return the only pool that has a job, of which it is not known where it was sent.

        It may take as long as a log, and counts as one that is being read.
        """
        with self._shares.reader(options.namespace, options.uid):
            return self._query_all(options)

    def _query_all(self, options: LogOptions) -> str:
        end = time.monotonic() + SEARCH_S
        while True:
            alive = self._pools.alive()
            replies = [self._lookup.look_up(pool, [options.job]) for pool in alive]
            if (replies and all(replies)) or time.monotonic() > end:
                return self._table.pool_of(options.uid)
            time.sleep(SEARCH_PAUSE_S)

    def _read(
        self, pool: str, options: LogOptions, client: Recipient
    ) -> Generator[bytes, None, None]:
        yield b""
        try:
            with self._shares.reader(options.namespace, options.uid) as readers:
                entry = self._table.find(options.uid, pool)
                job = entry.status.job if entry is not None else options.job
                reader = LogReader(self._gateway, pool, job, options, readers)
                yield from self._windows(reader, client)
        except Busy as busy:
            yield f"[interlink: {busy}]\n".encode()

    def _windows(self, reader: LogReader, client: Recipient) -> Generator[bytes, None, None]:
        try:
            while not reader.is_over and client.is_connected():
                for piece in _pieces(self._bridge.call(reader.next_window(), LONGEST_S)):
                    if not client.takes_more():
                        yield UNREAD
                        return
                    yield piece
        except (BridgeError, LinkError) as error:
            yield f"[interlink: the rest of the log cannot be read now: {error}]\n".encode()
        finally:
            with contextlib.suppress(BridgeError):
                self._bridge.call(reader.close(), CLOSE_S)


def _pieces(messages: list[bytes]) -> Iterator[bytes]:
    """Yield the bytes of a window's messages in small pieces."""
    for message in messages:
        for offset in range(0, len(message), PIECE):
            yield message[offset : offset + PIECE]


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
