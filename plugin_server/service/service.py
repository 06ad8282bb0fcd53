"""All parts of the plugin, put together; knows neither HTTP nor gunicorn."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Callable, NamedTuple, Optional

from plugin_server.common.settings import Orphans as OrphanSettings
from plugin_server.common.settings import Settings
from plugin_server.kubernetes.client import Access, Cluster
from plugin_server.kubernetes.orphans import OrphanLimits, Orphans
from plugin_server.kubernetes.terminal_status import UnwrittenEnds
from plugin_server.nats.bridge import Bridge, BridgeError
from plugin_server.nats.delete_retries import DeleteRetries
from plugin_server.nats.gateway import Gateway
from plugin_server.nats.handover import Handover
from plugin_server.nats.outbox import Sender
from plugin_server.nats.resync import Snapshots
from plugin_server.pods.config_requests import ConfigRequests
from plugin_server.pods.create import Creates, CreateSettings
from plugin_server.pods.delete import Deletes
from plugin_server.pods.job_lookup import Lookups
from plugin_server.pods.logs import Logs
from plugin_server.pods.missing_jobs import UnknownPods, UnknownSettings
from plugin_server.pods.status import Statuses
from plugin_server.state.delete_records import IntentFiles, IntentKeeper
from plugin_server.state.job_table import StatesTable
from plugin_server.state.pending_deletes import Deletions
from plugin_server.state.pools import Pools
from plugin_server.state.rejections import Refusals
from templates.program.settings import link_settings
from templates.protocol.publications import Config, Resources, StatusUpdate

if TYPE_CHECKING:
    from plugin_server.state.redis_store import Store

logger = logging.getLogger(__name__)

START_S = 10.0
ALIVE_S = 2.0
DEAD_AFTER_S = 60.0  # of silence on a connection that is pinged every few seconds
LAST_WORD_S = 5.0  # beyond its time, for what nothing more is waited for
READY_WITHIN_S = 20.0


class Counted(NamedTuple):
    """Who is told of what is counted."""

    connected: Callable[[], object]
    orphan_cancelled: Callable[[str], object]  # with its pool
    end_written: Callable[[str], object]  # likewise


class Service:
    """The plugin, from ``start`` to ``stop``."""

    def __init__(self, settings: Settings, counted: Counted) -> None:
        self.is_stopping: Callable[[], bool] = lambda: False
        self.bridge = Bridge()
        self.pools = Pools(settings.pool_timeout_s)
        self.table = StatesTable(settings.default_pool)
        self.gateway = Gateway(
            link_settings(settings.nats, "interlink-plugin"),
            settings.nats.root,
            self._hear_config,
            self._hear_resources,
            self._hear_statuses,
            counted.connected,
        )
        self.snapshots = Snapshots(self.gateway, self.table, self.pools)
        self._store = _store(settings, self.pools)
        files: IntentKeeper = IntentFiles(settings.state_directory)
        keepers = [files] if self._store is None else [files, self._store]
        self.deletions = Deletions(keepers, self._retry_soon)
        self._retries = DeleteRetries(self.gateway, self.deletions)
        self.orphans: Optional[Orphans] = None
        self.unwritten: Optional[UnwrittenEnds] = None
        if settings.orphans.api_server:
            self._ask_kubernetes(settings.orphans, counted)
        self._answer_interlink(settings)

    def _ask_kubernetes(self, settings: OrphanSettings, counted: Counted) -> None:
        cluster = Cluster(Access(settings.api_server, settings.token_file, settings.ca_file))
        self.orphans = Orphans(
            cluster,
            OrphanLimits(settings.after_s, settings.at_once),
            self.table,
            self.pools,
            self.deletions,
            counted.orphan_cancelled,
        )
        self.unwritten = UnwrittenEnds(
            cluster,
            settings.end_after_s,
            self.table,
            self.deletions,
            self._origin,
            counted.end_written,
        )

    def _origin(self) -> str:
        """The cluster that the jobs made here belong to; empty if nobody knows it."""
        return self.orphans.origin if self.orphans is not None else ""

    def _answer_interlink(self, settings: Settings) -> None:
        """What requests are answered by, in their threads."""
        refusals = Refusals()
        lookups = Lookups(self.bridge, self.gateway, self.table)
        unknown = UnknownPods(
            UnknownSettings(settings.default_pool, settings.lost_after_s),
            self.snapshots,
            lookups,
            self.deletions,
            refusals,
        )
        self.statuses = Statuses(self.pools, self.table, unknown)
        self._sender = Sender(self.gateway, self.deletions)
        self.creates = Creates(
            CreateSettings(
                settings.default_pool, settings.create_timeout_s, settings.server.waiting_creates
            ),
            self.pools,
            self.table,
            self.deletions,
            Handover(self.bridge, self._sender, self.deletions),
            configs=ConfigRequests(self.bridge, self.gateway, self.pools),
            refusals=refusals,
            origin=self._origin,
        )
        self.deletes = Deletes(settings.default_pool, self.table, self.deletions, refusals)
        readers = settings.server.log_readers
        self.logs = Logs(readers, self.bridge, self.gateway, self.table, self.pools, lookups)

    # --- life ---------------------------------------------------------------------------------

    def start(self, is_stopping: Callable[[], bool] = lambda: False) -> None:
        """Start the thread with the loop, and begin to connect.

        ``is_stopping`` says when the worker has been told to end: then its followers end.
        """
        self.is_stopping = is_stopping
        if self._store is not None:
            self._store.start()
        self.bridge.start()
        self.bridge.call(self._start(), START_S)
        for looks in (self.orphans, self.unwritten):
            if looks is not None:
                looks.looking.start()

    async def _start(self) -> None:
        await self.gateway.start()
        await self._retries.resume()

    def stop(self) -> None:
        """Close the connection and end the threads."""
        for looks in (self.orphans, self.unwritten):
            if looks is not None:
                looks.looking.stop()
        try:
            self.bridge.call(self._sender.stop(), START_S)
            self.creates.wait_for_all(LAST_WORD_S)
            self.bridge.call(self.gateway.stop(), START_S)
        except BridgeError as error:
            logger.warning("the connection could not be closed: %s", error)
        self.bridge.stop()
        if self._store is not None:
            self._store.stop()

    def is_alive(self) -> bool:
        """Whether the loop answers, and the connection has not died without a word."""
        try:
            self.bridge.ping(ALIVE_S)
        except BridgeError:
            return False
        silent = self.gateway.is_connected and self.gateway.silent_s > DEAD_AFTER_S
        return self.gateway.is_kept and not silent

    def is_ready(self) -> bool:
        """Whether a round trip through NATS has succeeded lately."""
        return self.gateway.is_connected and self.gateway.silent_s < READY_WITHIN_S

    def _retry_soon(self, pool: str) -> None:
        """Something is to be deleted there."""
        self.bridge.soon(lambda: self._retries.go(pool))

    # --- what is heard, in the loop's thread --------------------------------------------------

    def _hear_config(self, config: Config) -> None:
        if self.pools.hear_config(config):
            logger.info("pool %s: build configuration %s", config.pool, config.digest)
        self._retries.wake(config.pool)

    def _hear_resources(self, resources: Resources) -> None:
        self.pools.hear_resources(resources)
        self._retries.wake(resources.pool)

    def _hear_statuses(self, said: StatusUpdate) -> None:
        self.snapshots.hear(said)


def _store(settings: Settings, pools: Pools) -> Optional[Store]:
    """The store, if there is to be one; its client library takes memory."""
    if not settings.redis.url:
        return None
    from plugin_server.state.redis_store import Store

    return Store(settings.redis, pools)
