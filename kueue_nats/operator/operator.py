"""Main loop of the operator: one of several leads and reconciles, the others stand by."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
import uuid
from collections.abc import Mapping
from typing import Optional

from kueue_nats.kube import lease as leading
from kueue_nats.kube.client import KueueClient
from kueue_nats.kube.lease import ObservedLease
from kueue_nats.operator.health import Health
from kueue_nats.operator.metrics import Metrics
from kueue_nats.pools.listener import Listener
from kueue_nats.pools.tracker import PoolTracker
from kueue_nats.reconcile.reconciler import Reconciler, RoundInput, RoundResult
from kueue_nats.reconcile.restore import Clock
from kueue_nats.spec.errors import Conflicting, KueueClientError, NotAllowed
from kueue_nats.spec.masterqueue import NatsSource
from kueue_nats.spec.settings import Settings, own_namespace
from templates.protocol.publications import Resources

logger = logging.getLogger(__name__)

SOON_S = 0.2  # to the next round, when one has written something that it builds on
MAX_PAUSE_S = 30.0  # between attempts at a cluster that cannot be reached
HEAR_S = 3.0  # how long ``once`` waits for answers to its hello
CONNECT_S = 10.0


class Operator:
    """Operator process."""

    def __init__(self, settings: Settings, cluster: KueueClient, *, once: bool = False) -> None:
        self._settings, self._cluster = settings, cluster
        self._namespace = own_namespace(settings)
        self._tracker = PoolTracker()
        self._listener = Listener(self._on_publication)
        self._reconciler = Reconciler(cluster, settings.nats, self._namespace, strict=once)
        self._identity = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
        self._lease: Optional[ObservedLease] = None
        self._renewed_s = float("-inf")
        self._over_limit: set[NatsSource] = set()
        self._last_error = ""
        self._last_round_s = time.monotonic()
        self._changed = asyncio.Event()
        self.metrics = Metrics()
        self.health = Health(max(30.0, 10.0 * settings.poll_s))

    def _on_publication(self, source: NatsSource, resources: Resources) -> None:
        if self._tracker.latest(source, resources.pool) != resources:
            self._changed.set()
        added = self._tracker.record(source, resources, time.monotonic(), time.time())
        if not added and source not in self._over_limit:
            self._over_limit.add(source)
            logger.warning(
                "%s: more pools than can be kept; %s is left out", source, resources.pool
            )

    # --- for ever ---------------------------------------------------------------------------------

    async def run(self) -> int:
        """Reconcile until cancelled."""
        pause = float(self._settings.poll_s)
        try:
            while True:
                result = await self._run_round()
                if result is None:
                    pause = min(pause * 2, MAX_PAUSE_S)
                else:
                    pause = SOON_S if result.again else float(self._settings.poll_s)
                await self._pause(pause)
        finally:
            await self._listener.stop()
            await asyncio.to_thread(self._release_lease)

    async def _pause(self, pause: float) -> None:
        """Sleep until the next round: half of the pause, and the rest unless a pool changes."""
        await asyncio.sleep(pause / 2)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._changed.wait(), pause / 2)

    async def _run_round(self) -> Optional[RoundResult]:
        """Run a round if this operator leads; return None if the cluster could not be asked."""
        self._extend_timeouts()
        try:
            leads = await asyncio.to_thread(self._hold_lease)
            self.metrics.leads.set(leads)
            result = await self._reconcile() if leads else RoundResult({}, frozenset(), {}, False)
        except KueueClientError as error:
            self.metrics.rounds.labels("failed").inc()
            self._log_error(str(error))
            if not isinstance(error, NotAllowed):  # other credentials may be there after a restart
                self.health.beat()
            return None
        self._log_error("")
        self.health.beat()
        return result

    def _extend_timeouts(self) -> None:
        """Extend the timeouts of pools after this process was stopped, or the machine slept."""
        now_s = time.monotonic()
        late = now_s - self._last_round_s - MAX_PAUSE_S - 5.0
        if late > 0:
            logger.warning("nothing was done for %.0f s: that counts against no pool", late)
            self._tracker.extend_timeouts(late)
        self._last_round_s = now_s

    async def _reconcile(self) -> RoundResult:
        self._changed.clear()
        heard = RoundInput(self._tracker.snapshot(), self._listener.errors(), _clock())
        writes_before = self._cluster.writes
        result = await asyncio.to_thread(self._timed_round, heard)
        self.metrics.writes.inc(self._cluster.writes - writes_before)
        self.metrics.rounds.labels("done").inc()
        self.metrics.set_silence(self._tracker.snapshot(), time.monotonic())
        self._tracker.restore(result.restored)
        self._tracker.prune(result.wanted_sources, time.monotonic())
        await self._listener.set_sources(result.sources)
        return result

    def _timed_round(self, heard: RoundInput) -> RoundResult:
        before = time.thread_time()
        try:
            return self._reconciler.round(heard)
        finally:
            self.metrics.seconds.observe(time.thread_time() - before)

    def _log_error(self, error: str) -> None:
        """Log each error once, and when it has ended."""
        if error and error != self._last_error:
            logger.warning("%s", error)
        elif self._last_error and not error:
            logger.info("the cluster answers again")
        self._last_error = error

    # --- the lease --------------------------------------------------------------------------------

    def _hold_lease(self) -> bool:
        """Acquire the lease, or renew it after a third of its time; return whether it is held."""
        settings, cluster = self._settings, self._cluster
        if time.monotonic() - self._renewed_s < settings.lease_s / 3:
            return True
        lease = cluster.lease(self._namespace, settings.lease)
        now_s = time.monotonic()
        was = self._lease is not None and self._lease.holder == self._identity
        self._lease = leading.observe(lease, self._lease, now_s)
        if not leading.can_acquire(
            self._lease, self._identity, now_s, _lease_duration_s(lease, settings.lease_s)
        ):
            if was:
                logger.warning("another operator leads now: %s", self._lease and self._lease.holder)
            return False
        body = leading.lease_body(
            lease, settings.lease, self._identity, settings.lease_s, time.time()
        )
        try:
            cluster.write_lease(self._namespace, settings.lease, body)
        except Conflicting:
            return False
        if not was:
            logger.info("this operator leads: %s", self._identity)
        self._lease, self._renewed_s = ObservedLease(self._identity, "", now_s), now_s
        return True

    def _release_lease(self) -> None:
        """Release the lease, so that another operator need not wait."""
        if self._lease is None or self._lease.holder != self._identity:
            return
        try:
            lease = self._cluster.lease(self._namespace, self._settings.lease)
            seen = leading.observe(lease, None, time.monotonic())
            if seen is None or seen.holder != self._identity:
                return  # it ran out, and another one has it
            body = leading.lease_body(lease, self._settings.lease, "", 1, time.time())
            self._cluster.write_lease(self._namespace, self._settings.lease, body)
        except KueueClientError as error:
            logger.info("the lease could not be given back: %s", error)

    # --- once -------------------------------------------------------------------------------------

    async def run_once(self) -> int:
        """Hear all pools, run rounds until nothing is left to do; return the exit code."""
        try:
            if not await asyncio.to_thread(self._hold_lease):
                logger.error("another operator leads: %s", self._lease and self._lease.holder)
                return 1
            sources = await asyncio.to_thread(self._reconciler.sources, _clock())
            await self._listener.set_sources(sources)
            if not await self._listener.connected(CONNECT_S):
                for source, error in self._listener.errors().items():
                    logger.warning("%s: %s", source, error)
            await asyncio.sleep(HEAR_S)
            while (await self._reconcile()).again:
                await asyncio.sleep(SOON_S)
            return 0
        except KueueClientError as error:
            logger.error("%s", error)
            return 1
        finally:
            await self._listener.stop()
            await asyncio.to_thread(self._release_lease)


def _lease_duration_s(lease: Optional[Mapping[str, object]], own_s: int) -> float:
    """Return how long the holder may go without renewing the lease, as the lease says."""
    spec = (lease or {}).get("spec")
    said = spec.get("leaseDurationSeconds") if isinstance(spec, dict) else None
    return float(said) if isinstance(said, int) else float(own_s)


def _clock() -> Clock:
    return Clock(time.monotonic(), time.time())
