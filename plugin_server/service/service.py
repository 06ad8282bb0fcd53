"""The service: all parts of the plugin; knows neither HTTP nor gunicorn."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Callable, NamedTuple, Optional

from plugin_server.common.settings import OrphanSettings, Settings
from plugin_server.kubernetes.client import PodApi
from plugin_server.kubernetes.orphans import OrphanFinder, OrphanLimits
from plugin_server.kubernetes.terminal_status import TerminalStatusWriter
from plugin_server.nats.bridge import Bridge, BridgeError
from plugin_server.nats.delete_retries import DeleteRetries
from plugin_server.nats.gateway import Gateway
from plugin_server.nats.handover import Handover
from plugin_server.nats.outbox import Sender
from plugin_server.nats.resync import Resync
from plugin_server.pods.config_requests import ConfigRequests
from plugin_server.pods.create import Creates, CreateSettings
from plugin_server.pods.delete import Deletes
from plugin_server.pods.job_lookup import JobLookup
from plugin_server.pods.logs import Logs
from plugin_server.pods.missing_jobs import UnknownPods, UnknownSettings
from plugin_server.pods.status import StatusRequests
from plugin_server.state.delete_records import DeleteRecordFiles, DeleteRecordStore
from plugin_server.state.homes import Homes
from plugin_server.state.job_table import JobTable
from plugin_server.state.pending_deletes import Deletions
from plugin_server.state.pools import Pools
from plugin_server.state.rejections import Rejections
from templates.program.settings import link_settings
from templates.protocol.publications import Config, Resources, StatusUpdate

if TYPE_CHECKING:
    from plugin_server.state.redis_store import Store

logger = logging.getLogger(__name__)

START_S = 10.0
ALIVE_S = 2.0
DEAD_AFTER_S = 60.0  # of silence on a connection that is pinged every few seconds
CREATES_S = 5.0  # for creates to end when the plugin stops
READY_WITHIN_S = 20.0
LOG_EVERY_S = 10.0  # of one kind of change of a pool


class CountCallbacks(NamedTuple):
    """Callbacks that count events."""

    connected: Callable[[], object]
    orphan_cancelled: Callable[[str], object]  # called with the pool
    end_written: Callable[[str], object]  # likewise


class Service:
    """All parts of the plugin, from ``start`` to ``stop``."""

    def __init__(self, settings: Settings, callbacks: CountCallbacks) -> None:
        self.is_stopping: Callable[[], bool] = lambda: False
        self._logged: dict[tuple[str, str], float] = {}  # pool and kind -> when
        self.bridge = Bridge()
        self.pools = Pools(settings.pool_timeout_s)
        self.table = JobTable(settings.default_pool, homes=Homes(settings.state_directory))
        self.gateway = Gateway(
            link_settings(settings.nats, "interlink-plugin"),
            settings.nats.root,
            self._on_config,
            self._on_resources,
            self._on_statuses,
            callbacks.connected,
        )
        self.resync = Resync(self.gateway, self.table, self.pools)
        self._store = _store(settings, self.pools)
        files: DeleteRecordStore = DeleteRecordFiles(settings.state_directory)
        keepers = [files] if self._store is None else [files, self._store]
        self.deletions = Deletions(keepers, self._wake_retries)
        self._retries = DeleteRetries(self.gateway, self.deletions)
        self.orphans: Optional[OrphanFinder] = None
        self.terminal_statuses: Optional[TerminalStatusWriter] = None
        if settings.orphans.api_server:
            self._watch_kubernetes(settings.orphans, callbacks)
        self._build_requests(settings)

    def _watch_kubernetes(self, settings: OrphanSettings, callbacks: CountCallbacks) -> None:
        api = PodApi(settings.api_server, settings.token_file, settings.ca_file)
        self.orphans = OrphanFinder(
            api,
            OrphanLimits(settings.after_s, settings.at_once),
            self.table,
            self.pools,
            self.deletions,
            callbacks.orphan_cancelled,
        )
        self.terminal_statuses = TerminalStatusWriter(
            api,
            settings.end_after_s,
            self.table,
            self.deletions,
            self._origin,
            callbacks.end_written,
        )

    def _origin(self) -> str:
        """Return the uid of this cluster; empty if unknown."""
        return self.orphans.origin if self.orphans is not None else ""

    def _build_requests(self, settings: Settings) -> None:
        """Build the use cases, which run in the threads of requests."""
        rejections = Rejections()
        lookup = JobLookup(self.bridge, self.gateway, self.table)
        unknown = UnknownPods(
            UnknownSettings(settings.default_pool, settings.lost_after_s),
            self.resync,
            lookup,
            self.deletions,
            rejections,
        )
        self.statuses = StatusRequests(self.pools, self.table, unknown)
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
            rejections=rejections,
            origin=self._origin,
        )
        self.deletes = Deletes(settings.default_pool, self.table, self.deletions, rejections)
        readers = settings.server.log_readers
        self.logs = Logs(readers, self.bridge, self.gateway, self.table, self.pools, lookup)

    # --- life ---------------------------------------------------------------------------------

    def start(self, is_stopping: Callable[[], bool] = lambda: False) -> None:
        """Start the thread with the loop, and connect.

        ``is_stopping`` returns whether the worker is stopping: then followed logs end.
        """
        self.is_stopping = is_stopping
        if self._store is not None:
            self._store.start()
        self.bridge.start()
        self.bridge.call(self._start(), START_S)
        for watcher in (self.orphans, self.terminal_statuses):
            if watcher is not None:
                watcher.poller.start()

    async def _start(self) -> None:
        await self.gateway.start()
        await self._retries.resume()

    def stop(self) -> None:
        """Close the connection and stop the threads."""
        for watcher in (self.orphans, self.terminal_statuses):
            if watcher is not None:
                watcher.poller.stop()
        try:
            self.bridge.call(self._sender.stop(), START_S)
            self.creates.wait_for_all(CREATES_S)
            self.bridge.call(self.gateway.stop(), START_S)
        except BridgeError as error:
            logger.warning("the connection could not be closed: %s", error)
        self.bridge.stop()
        if self._store is not None:
            self._store.stop()

    def is_alive(self) -> bool:
        """Return whether the loop responds, and the connection is not dead."""
        try:
            self.bridge.ping(ALIVE_S)
        except BridgeError:
            return False
        silent = self.gateway.is_connected and self.gateway.silent_s > DEAD_AFTER_S
        return self.gateway.is_link_running and not silent

    def is_ready(self) -> bool:
        """Return whether a round trip through NATS has succeeded lately."""
        return self.gateway.is_connected and self.gateway.silent_s < READY_WITHIN_S

    def _wake_retries(self, pool: str) -> None:
        """Send the pending deletes of a pool, from any thread."""
        self.bridge.call_soon(lambda: self._retries.send(pool))

    # --- publications, in the loop's thread ---------------------------------------------------

    def _on_config(self, config: Config) -> None:
        if self.pools.update_config(config):
            self._log(logging.INFO, config.pool, "build configuration", config.digest)
        self._retries.wake(config.pool)

    def _on_resources(self, resources: Resources) -> None:
        before = self.pools.update_resources(resources)
        if resources.left_out and (before is None or before.left_out != resources.left_out):
            self._log(logging.WARNING, resources.pool, "resources", resources.left_out)
        self._retries.wake(resources.pool)

    def _log(self, level: int, pool: str, kind: str, value: str) -> None:
        """Log what a pool has changed, now and then: a site may change it all the time."""
        now = time.monotonic()
        if now - self._logged.get((pool, kind), float("-inf")) >= LOG_EVERY_S:
            self._logged[pool, kind] = now
            logger.log(level, "pool %s: %s: %s", pool, kind, value)

    def _on_statuses(self, published: StatusUpdate) -> None:
        self.resync.apply(published)


def _store(settings: Settings, pools: Pools) -> Optional[Store]:
    """Return the Redis store; None without a URL: its client library takes memory."""
    if not settings.redis.url:
        return None
    from plugin_server.state.redis_store import Store

    return Store(settings.redis, pools)
