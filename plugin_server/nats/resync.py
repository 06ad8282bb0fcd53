"""Resync: apply published job states, and refetch them after missed publications.

Every submitter numbers its publications. A missing number, a new submitter, or a number of jobs
that differs for a while make the plugin query all states of the pool, page by page. All of it
happens in the loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Callable, NamedTuple

from plugin_server.nats.gateway import Gateway
from plugin_server.state.job_table import MAX_JOBS, JobTable
from plugin_server.state.pools import Pools
from templates.common.errors import PodRejected, WireError
from templates.common.names import uid_of
from templates.nats.requests import LinkError
from templates.protocol.messages import Query, Refusal
from templates.protocol.publications import StatusUpdate

logger = logging.getLogger(__name__)

PAGE_TIMEOUT_S = 10.0
SNAPSHOT_PAUSE_S = 1.0  # two snapshots of one pool
RETRY_S = 5.0  # after one that failed
MARGIN_S = 10.0  # jobs received so shortly before a snapshot need not be in it
MISCOUNTS = 3  # heartbeats in a row with another number of jobs
MISCOUNT_PAUSE_S = 60.0  # between two snapshots for that reason alone
FORGET_S = 3600.0  # a submitter that has not published for so long
SNAPSHOT_S = 120.0  # a snapshot that takes longer is given up
MOST_PUBLISHERS = 64  # submitters of a pool, and former ones


class Publisher(NamedTuple):
    """Submitter process, and the number of its last publication."""

    number: int
    heard: float


class _PoolSync:
    """State of the resync of one pool."""

    def __init__(self) -> None:
        self.publishers: dict[str, Publisher] = {}
        self.requested = asyncio.Event()
        self.miscounts = 0
        self.miscounted_at = float("-inf")
        self.is_running = False
        self.task: asyncio.Task[None] | None = None


class Resync:
    """Receiver of published job states that refetches those that were missed."""

    def __init__(
        self,
        gateway: Gateway,
        table: JobTable,
        pools: Pools,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gateway = gateway
        self._table = table
        self._pools = pools
        self._clock = clock
        self._syncs: dict[str, _PoolSync] = {}
        self.completed = 0

    def is_syncing(self, pool: str) -> bool:
        """Return whether a snapshot of a pool is pending or running."""
        sync = self._syncs.get(pool)
        return sync is not None and (sync.is_running or sync.requested.is_set())

    def apply(self, published: StatusUpdate) -> None:
        """Apply a publication; request a snapshot if one was missed."""
        self._pools.mark_alive(published.pool)
        for status in published.states:
            self._table.put(published.pool, status)
        self._table.remove(published.pool, uids_of(published.gone))
        sync = self._sync_of(published.pool)
        if self._is_gap(sync, published) or self._is_miscounted(sync, published):
            sync.requested.set()

    def _sync_of(self, name: str) -> _PoolSync:
        sync = self._syncs.get(name)
        if sync is None:
            sync = self._syncs[name] = _PoolSync()
            sync.task = asyncio.ensure_future(self._resync_loop(name, sync))
        return sync

    def _is_gap(self, sync: _PoolSync, published: StatusUpdate) -> bool:
        """Return whether a publication was missed."""
        now = self._clock()
        last = sync.publishers.get(published.instance)
        if len(sync.publishers) > 8:
            fresh = {k: v for k, v in sync.publishers.items() if now - v.heard < FORGET_S}
            sync.publishers = dict(list(fresh.items())[-MOST_PUBLISHERS:])
        sync.publishers[published.instance] = Publisher(published.number, now)
        if last is None:
            return True
        expected = last.number + (1 if published.states or published.gone else 0)
        return published.number not in (last.number, expected)

    def _is_miscounted(self, sync: _PoolSync, published: StatusUpdate) -> bool:
        """Return whether the submitter has had another number of jobs for a while."""
        if published.jobs == self._table.count(published.pool):
            sync.miscounts = 0
            return False
        sync.miscounts += 1
        now = self._clock()
        if sync.miscounts < MISCOUNTS or now - sync.miscounted_at < MISCOUNT_PAUSE_S:
            return False
        sync.miscounts, sync.miscounted_at = 0, now
        return True

    # --- snapshots ----------------------------------------------------------------------------

    async def _resync_loop(self, name: str, sync: _PoolSync) -> None:
        """Fetch a snapshot whenever one is wanted, for ever."""
        while True:
            await sync.requested.wait()
            sync.is_running = True
            sync.requested.clear()
            try:
                await asyncio.wait_for(self._fetch_snapshot(name), SNAPSHOT_S)
            except (LinkError, WireError, PodRejected, asyncio.TimeoutError) as error:
                reason = str(error) or f"not all came within {SNAPSHOT_S:g} s"
                logger.info("pool %s: its states could not be fetched: %s", name, reason)
                sync.is_running = False
                sync.requested.set()
                await asyncio.sleep(RETRY_S)
                continue
            sync.is_running = False
            await asyncio.sleep(SNAPSHOT_PAUSE_S)

    async def _fetch_snapshot(self, pool: str) -> None:
        """Fetch all states of a pool, and remove the jobs that it no longer has."""
        began = self._clock()
        found: set[str] = set()
        cursor = ""
        while True:
            page = await self._gateway.query(pool, Query(None, cursor), PAGE_TIMEOUT_S)
            if isinstance(page, Refusal):
                raise WireError(f"pool {pool}", f"refused a query: {page.message}")
            before = len(found)
            for status in page.states:
                self._table.put(pool, status)
                found.add(status.uid)
            if not page.cursor or page.cursor == cursor:
                break
            if len(found) == before or len(found) > MAX_JOBS:
                raise WireError(f"pool {pool}", f"its pages do not end ({len(found)} jobs)")
            cursor = page.cursor
            await asyncio.sleep(0)
        stale = self._table.keep_only(pool, found, began - MARGIN_S)
        self.completed += 1
        took = self._clock() - began
        logger.info("pool %s: %d jobs fetched in %.2f s, %d gone", pool, len(found), took, stale)


def uids_of(jobs: tuple[str, ...]) -> list[str]:
    """Return the uids in job names; invalid names are left out."""
    uids = []
    for job in jobs:
        try:
            uids.append(uid_of(job))
        except PodRejected:
            continue
    return uids
