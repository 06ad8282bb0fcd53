"""Metrics for Prometheus, of any number of workers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from plugin_server.common.errors import Refused
from plugin_server.service.service import Service
from plugin_server.state.job_table import FAILED, ZERO_COUNTS
from templates.job.status import PHASES

PREFIX = "interlink_plugin_"
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class Counters:
    """Counters of this process."""

    def __init__(self, *, watches_kubernetes: bool) -> None:
        self.registry = CollectorRegistry()
        calls = self._counter("calls", "HTTP requests", "endpoint", "outcome")
        seconds = Histogram(
            f"{PREFIX}call_seconds",
            "Latency of HTTP requests in seconds",
            ("endpoint",),
            buckets=BUCKETS,
            registry=self.registry,
        )
        endpoints = ("create", "delete", "status", "getLogs")
        outcomes = ("ok", "refused", "failed")
        self._calls = {(e, o): calls.labels(e, o) for e in endpoints for o in outcomes}
        self._seconds = {endpoint: seconds.labels(endpoint) for endpoint in endpoints}
        self.connected = self._counter(
            "nats_connections", "Connections to NATS that were established"
        ).inc
        self._by_pool: list[Counter] = []
        if watches_kubernetes:
            help_text = "Orphaned jobs cancelled: Kubernetes no longer has their pods"
            self._by_pool.append(self._counter("orphans_cancelled", help_text, "pool"))
            help_text = "Terminal statuses written to Kubernetes because interLink did not"
            self._by_pool.append(self._counter("ends_written", help_text, "pool"))

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(f"{PREFIX}{name}", help_text, labels, registry=self.registry)

    @contextlib.contextmanager
    def call(self, endpoint: str) -> Iterator[None]:
        """Count a call and its duration."""
        start = time.perf_counter()
        outcome = "failed"
        try:
            yield
            outcome = "ok"
        except Refused:
            outcome = "refused"
            raise
        finally:
            self.count(endpoint, outcome, start)

    def count(self, endpoint: str, outcome: str, start: float) -> None:
        """Count a call that began at ``start`` (``perf_counter``) and has ended now."""
        self._calls[endpoint, outcome].inc()
        self._seconds[endpoint].observe(time.perf_counter() - start)

    def orphan_cancelled(self, pool: str) -> None:
        """Count an orphan that was cancelled; only if Kubernetes is watched."""
        self._by_pool[0].labels(pool).inc()

    def end_written(self, pool: str) -> None:
        """Count a terminal status that was written to Kubernetes, likewise."""
        self._by_pool[1].labels(pool).inc()

    def add_pools(self, pools: Iterable[str]) -> None:
        """Set counters of pools to 0 before the first event: else no rise to 1 is seen."""
        for counter in self._by_pool:
            for pool in pools:
                counter.labels(pool)


class Metrics:
    """Page with the metrics of all workers."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, counters: Counters, service: Service, shared_directory: str) -> None:
        self._counters = counters
        self._service = service
        self._shared = shared_directory

    def page(self) -> bytes:
        """Return the page in Prometheus' format."""
        self._counters.add_pools(self._service.pools.snapshot())
        registry = CollectorRegistry()
        if self._shared:
            MultiProcessCollector(registry, self._shared)  # type: ignore[no-untyped-call]
        else:
            registry.register(self._counters.registry)
        registry.register(_StateCollector(self._service))
        return generate_latest(registry)


class _StateCollector(Collector):
    """Collector of this worker's state; that of every worker is the same.

    It yields every metric for each known pool, so that what is not the case is 0.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterable[Metric]:
        service = self._service
        known = service.pools.snapshot()
        silent = {pool: service.pools.seconds_since_heard(info) for pool, info in known.items()}
        in_trouble = {pool: int(bool(service.pools.scheduler_error(pool))) for pool in known}
        waiting = {**dict.fromkeys(known, 0), **service.deletions.count_pending()}
        connected = GaugeMetricFamily(f"{PREFIX}nats_connected", "1 if connected to NATS, else 0")
        connected.add_metric((), int(service.gateway.is_connected))
        return (
            *self._of_pods(known),
            _by_pool("pool_silent_seconds", "Seconds since the last publication of a pool", silent),
            _by_pool(
                "pool_in_trouble",
                "1 if the batch system of a pool cannot be queried, else 0",
                in_trouble,
            ),
            _by_pool(
                "deletions_waiting", "Pending deletions: not yet confirmed by the site", waiting
            ),
            connected,
            *self._of_orphans(known),
        )

    def _of_pods(self, known: Mapping[str, object]) -> Iterable[Metric]:
        counts = {**dict.fromkeys(known, ZERO_COUNTS), **self._service.table.count_by_phase()}
        pods = GaugeMetricFamily(
            f"{PREFIX}pods", "Pods by pool and phase of their jobs", labels=("pool", "phase")
        )
        for pool, of_pool in counts.items():
            for phase in PHASES:
                pods.add_metric((pool, phase), of_pool[phase])
        yield pods
        failed = {pool: of_pool[FAILED] for pool, of_pool in counts.items()}
        yield _by_pool("pods_failed", "Pods with an exit code other than 0", failed)

    def _of_orphans(self, known: Mapping[str, object]) -> Iterable[Metric]:
        orphans = self._service.orphans
        if orphans is None:
            return
        held = {**dict.fromkeys(known, 0), **orphans.held}
        yield _by_pool(
            "orphans_held", "Orphaned jobs not cancelled: more than orphans.at_once", held
        )
        silent = GaugeMetricFamily(
            f"{PREFIX}kubernetes_silent_seconds", "Seconds since the last complete list of pods"
        )
        silent.add_metric((), orphans.silent_s)
        yield silent


def _by_pool(name: str, help_text: str, values: Mapping[str, float]) -> Metric:
    gauge = GaugeMetricFamily(f"{PREFIX}{name}", help_text, labels=("pool",))
    for pool, value in values.items():
        gauge.add_metric((pool,), value)
    return gauge
