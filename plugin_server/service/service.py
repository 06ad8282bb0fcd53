"""All parts of the plugin, put together; knows neither HTTP nor gunicorn."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Callable, Optional

from plugin_server.common.settings import Orphans as OrphanSettings
from plugin_server.common.settings import Settings
from plugin_server.interlink import requests as asking
from plugin_server.kubernetes.client import Access, Cluster
from plugin_server.kubernetes.orphans import Orphans
from plugin_server.kubernetes.terminal_status import UnwrittenEnds
from plugin_server.nats.bridge import Bridge, BridgeError
from plugin_server.nats.gateway import Gateway
from plugin_server.pods.create import Creates, CreateSettings
from plugin_server.pods.delete import Deletions
from plugin_server.pods.logs import Logs
from plugin_server.pods.missing_jobs import UnknownPods, UnknownSettings
from plugin_server.pods.outbox import Sender
from plugin_server.pods.status import Statuses
from plugin_server.state.job_lookup import Lookups
from plugin_server.state.job_table import StatesTable
from plugin_server.state.pending_deletes import IntentFiles, IntentKeeper
from plugin_server.state.pools import Pools
from plugin_server.state.resync import Snapshots
from templates.common.names import job_name
from templates.program.settings import link_settings
from templates.protocol.publications import Config, Resources
from templates.protocol.publications import Statuses as Published

if TYPE_CHECKING:
    from plugin_server.state.redis_store import Store

logger = logging.getLogger(__name__)

START_S = 10.0
ALIVE_S = 2.0
DEAD_AFTER_S = 60.0  # of silence on a connection that is pinged every few seconds
LAST_WORD_S = 5.0  # beyond its time, for what nothing more is waited for
READY_WITHIN_S = 20.0


class Service:
    """The plugin, from ``start`` to ``stop``."""

    def __init__(self, settings: Settings) -> None:
        self.is_stopping: Callable[[], bool] = lambda: False  # the worker says when it is
        self.bridge = Bridge()
        self.pools = Pools(settings.pool_timeout_s)
        self.table = StatesTable(settings.default_pool)
        self.gateway = Gateway(
            link_settings(settings.nats, "interlink-plugin"),
            settings.nats.root,
            self._hear_config,
            self._hear_resources,
            self._hear_statuses,
        )
        self.snapshots = Snapshots(self.gateway, self.table, self.pools)
        self._store = _store(settings, self.pools)
        files: IntentKeeper = IntentFiles(settings.state_directory)
        keepers = [files] if self._store is None else [files, self._store]
        self.deletions = Deletions(self.gateway, keepers, self.bridge.soon)
        self.lookups = Lookups(self.bridge, self.gateway, self.table)
        create = CreateSettings(
            settings.default_pool, settings.create_timeout_s, settings.server.waiting_creates
        )
        self.sender = Sender(self.gateway, self.deletions)
        self.creates = Creates(
            create, self.gateway, self.pools, self.table, self.deletions, self.sender
        )
        lost = UnknownSettings(settings.default_pool, settings.lost_after_s)
        refusals = self.creates.refusals
        unknown = UnknownPods(lost, self.snapshots, self.lookups, self.deletions, refusals)
        self.statuses = Statuses(self.pools, self.table, unknown)
        readers = settings.server.log_readers
        self.logs = Logs(readers, self.bridge, self.gateway, self.table, self.pools, self.lookups)
        self._default_pool = settings.default_pool
        self.longest_s = settings.create_timeout_s + LAST_WORD_S
        self.orphans: Optional[Orphans] = None
        self.unwritten: Optional[UnwrittenEnds] = None
        if settings.orphans.api_server:
            self._ask_kubernetes(settings.orphans)

    def _ask_kubernetes(self, settings: OrphanSettings) -> None:
        cluster = Cluster(Access(settings.api_server, settings.token_file, settings.ca_file))
        limits = (settings.after_s, settings.at_once)
        orphans = Orphans(cluster, limits, self.table, self.pools, self.deletions)
        self.orphans = orphans
        self.creates.origin = lambda: orphans.origin
        self.unwritten = UnwrittenEnds(
            cluster, settings.end_after_s, self.table, self.deletions, lambda: orphans.origin
        )

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread with the loop, and begin to connect."""
        if self._store is not None:
            self._store.start()
        self.bridge.start()
        self.bridge.call(self._start(), START_S)
        for looks in (self.orphans, self.unwritten):
            if looks is not None:
                looks.looking.start()

    async def _start(self) -> None:
        await self.gateway.start()
        await self.deletions.resume()

    def stop(self) -> None:
        """Close the connection and end the threads."""
        for looks in (self.orphans, self.unwritten):
            if looks is not None:
                looks.looking.stop()
        try:
            self.bridge.call(self._stop(), START_S)
        except BridgeError as error:
            logger.warning("the connection could not be closed: %s", error)
        self.bridge.stop()
        if self._store is not None:
            self._store.stop()

    async def _stop(self) -> None:
        self.sender.stop()
        await self.creates.ended(LAST_WORD_S)
        await self.gateway.stop()

    def is_alive(self) -> bool:
        """Whether the loop answers, and the connection has not died without a word."""
        try:
            self.bridge.call(asyncio.sleep(0), ALIVE_S)
        except BridgeError:
            return False
        silent = self.gateway.is_connected and self.gateway.silent_s > DEAD_AFTER_S
        return self.gateway.is_kept and not silent

    def is_ready(self) -> bool:
        """Whether a round trip through NATS has succeeded lately."""
        return self.gateway.is_connected and self.gateway.silent_s < READY_WITHIN_S

    # --- what is heard, in the loop's thread --------------------------------------------------

    def _hear_config(self, config: Config) -> None:
        if self.pools.hear_config(config):
            logger.info("pool %s: build configuration %s", config.pool, config.digest)
        self.deletions.wake(config.pool)

    def _hear_resources(self, resources: Resources) -> None:
        self.pools.hear_resources(resources)
        self.deletions.wake(resources.pool)

    def _hear_statuses(self, said: Published) -> None:
        self.snapshots.hear(said)

    # --- what is asked ------------------------------------------------------------------------

    def delete(self, body: bytes) -> None:
        """Promise that a pod's job ends; raises ``Malformed``."""
        raw: Any = asking.decode(body)
        if type(raw) is list and len(raw) == 1:
            raw = raw[0]
        pod = asking.read(raw)
        job = job_name(pod.name, pod.uid)
        entry = self.table.find(pod.uid, pod.pool)
        pool = entry.pool if entry is not None else pod.pool or self.table.pool_of(pod.uid)
        pool = pool or self._default_pool
        if not pool:
            self.deletions.mark(pod.uid)
            logger.warning("%s: deleted, but no pool is known to have it", job, extra={"job": job})
        else:
            self.deletions.add(pool, job, asking.grace_period(raw))
        self.creates.refusals.forget(pod.uid)


def _store(settings: Settings, pools: Pools) -> Optional[Store]:
    """The store, if there is to be one; its client library takes memory."""
    if not settings.redis.url:
        return None
    from plugin_server.state.redis_store import Store

    return Store(settings.redis, pools)
