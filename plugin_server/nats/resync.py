"""Keeping the table right: what submitters publish, and asking when some of it was missed.

Every submitter numbers what it publishes. A number that is missing, a submitter that was not known
before, or a count of jobs that does not fit for a while make the plugin ask for all states of the
pool, page by page. All of it happens in the loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Callable, NamedTuple

from plugin_server.nats.gateway import Gateway
from plugin_server.state.job_table import StatesTable
from plugin_server.state.pools import Pools
from templates.common.errors import PodRejected, WireError
from templates.common.names import uid_of
from templates.nats.requests import LinkError
from templates.protocol.messages import Query, Refusal
from templates.protocol.publications import StatusUpdate

logger = logging.getLogger(__name__)

PAGE_TIMEOUT_S = 10.0
BETWEEN_S = 1.0  # two snapshots of one pool
RETRY_S = 5.0  # after one that came to nothing
MARGIN_S = 10.0  # what was heard so shortly before a snapshot, it need not hold
MISCOUNTS = 3  # heartbeats in a row whose count does not fit
MISCOUNT_PAUSE_S = 60.0  # between two snapshots for that reason alone
FORGET_S = 3600.0  # a submitter that has not spoken for so long
PAGES = 100_000  # of one snapshot; a liar must not keep us busy for ever


class _Voice(NamedTuple):
    """One submitter process."""

    number: int
    heard: float


class _Pool:
    """What is needed to keep one pool right."""

    def __init__(self) -> None:
        self.voices: dict[str, _Voice] = {}
        self.wanted = asyncio.Event()
        self.miscounts = 0
        self.miscounted_at = float("-inf")
        self.busy = False
        self.synced = False  # a snapshot has been complete in this life
        self.task: asyncio.Task[None] | None = None


class Snapshots:
    """Hears what is published, and asks for what was missed."""

    def __init__(
        self,
        gateway: Gateway,
        table: StatesTable,
        pools: Pools,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gateway = gateway
        self._table = table
        self._pools_known = pools
        self._clock = clock
        self._pools: dict[str, _Pool] = {}
        self.taken = 0

    def is_syncing(self, pool: str) -> bool:
        """Whether the states of a pool are on their way."""
        known = self._pools.get(pool)
        return known is not None and (known.busy or known.wanted.is_set())

    def hear(self, said: StatusUpdate) -> None:
        """Take a publication."""
        self._pools_known.hear(said.pool)
        for status in said.states:
            self._table.put(said.pool, status)
        self._table.remove(said.pool, uids_of(said.gone))
        pool = self._pool(said.pool)
        if self._is_gap(pool, said) or self._is_miscounted(pool, said):
            pool.wanted.set()

    def _pool(self, name: str) -> _Pool:
        pool = self._pools.get(name)
        if pool is None:
            pool = self._pools[name] = _Pool()
            pool.task = asyncio.ensure_future(self._keep_right(name, pool))
        return pool

    def _is_gap(self, pool: _Pool, said: StatusUpdate) -> bool:
        """Whether something was published that has not arrived here."""
        now = self._clock()
        known = pool.voices.get(said.instance)
        if len(pool.voices) > 8:
            fresh = {k: v for k, v in pool.voices.items() if now - v.heard < FORGET_S}
            pool.voices = dict(list(fresh.items())[-1000:])
        pool.voices[said.instance] = _Voice(said.number, now)
        if known is None:
            return True
        expected = known.number + (1 if said.states or said.gone else 0)
        return said.number not in (known.number, expected)

    def _is_miscounted(self, pool: _Pool, said: StatusUpdate) -> bool:
        """Whether the submitter has known another number of jobs for a while."""
        if said.jobs == self._table.count(said.pool):
            pool.miscounts = 0
            return False
        pool.miscounts += 1
        now = self._clock()
        if pool.miscounts < MISCOUNTS or now - pool.miscounted_at < MISCOUNT_PAUSE_S:
            return False
        pool.miscounts, pool.miscounted_at = 0, now
        return True

    # --- asking -------------------------------------------------------------------------------

    async def _keep_right(self, name: str, pool: _Pool) -> None:
        """Take a snapshot whenever one is wanted, for ever."""
        while True:
            await pool.wanted.wait()
            pool.busy = True
            pool.wanted.clear()
            try:
                await self._snapshot(name)
            except (LinkError, WireError, PodRejected) as error:
                logger.info("pool %s: its states could not be fetched: %s", name, error)
                pool.busy = False
                pool.wanted.set()
                await asyncio.sleep(RETRY_S)
                continue
            pool.busy = False
            pool.synced = True
            await asyncio.sleep(BETWEEN_S)

    async def _snapshot(self, pool: str) -> None:
        """All states of a pool, and the end of those that it no longer has."""
        began = self._clock()
        found: set[str] = set()
        cursor = ""
        for _ in range(PAGES):
            page = await self._gateway.query(pool, Query(None, cursor), PAGE_TIMEOUT_S)
            if isinstance(page, Refusal):
                raise WireError(f"pool {pool}", f"refused a query: {page.message}")
            for status in page.states:
                self._table.put(pool, status)
                found.add(status.uid)
            if not page.cursor or page.cursor == cursor:
                break
            cursor = page.cursor
            await asyncio.sleep(0)
        stale = self._table.keep_only(pool, found, began - MARGIN_S)
        self.taken += 1
        took = self._clock() - began
        logger.info("pool %s: %d jobs fetched in %.2f s, %d gone", pool, len(found), took, stale)


def uids_of(jobs: tuple[str, ...]) -> list[str]:
    """The uids in job names; what is none is left out."""
    uids = []
    for job in jobs:
        try:
            uids.append(uid_of(job))
        except PodRejected:
            continue
    return uids
