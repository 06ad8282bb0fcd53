"""What Prometheus is told: right under any number of workers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator

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

from plugin_server.errors import Refused
from plugin_server.service import Service

PREFIX = "interlink_plugin_"
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class Metrics:
    """Counters of this process, and a page of all of them."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, service: Service, shared_directory: str) -> None:
        self._service = service
        self._shared = shared_directory
        self._registry = CollectorRegistry()
        calls = Counter(
            f"{PREFIX}calls", "HTTP calls", ("endpoint", "outcome"), registry=self._registry
        )
        seconds = Histogram(
            f"{PREFIX}call_seconds",
            "Duration of HTTP calls",
            ("endpoint",),
            buckets=BUCKETS,
            registry=self._registry,
        )
        connections = Counter(
            f"{PREFIX}nats_connections", "Connections made to NATS", registry=self._registry
        )
        service.gateway.on_connected = connections.inc
        if service.orphans is not None:
            cancelled = Counter(
                f"{PREFIX}orphans_cancelled",
                "Jobs cancelled because Kubernetes no longer knew their pods",
                ("pool",),
                registry=self._registry,
            )
            service.orphans.on_cancelled = lambda pool: cancelled.labels(pool).inc()
        endpoints = ("create", "delete", "status", "getLogs")
        outcomes = ("ok", "refused", "failed")
        self._calls = {(e, o): calls.labels(e, o) for e in endpoints for o in outcomes}
        self._seconds = {endpoint: seconds.labels(endpoint) for endpoint in endpoints}

    @contextlib.contextmanager
    def call(self, endpoint: str) -> Iterator[None]:
        """Count a call, and how long it takes."""
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
        """Count a call that began then (``perf_counter``) and is over now."""
        self._calls[endpoint, outcome].inc()
        self._seconds[endpoint].observe(time.perf_counter() - start)

    def page(self) -> bytes:
        """Everything, as Prometheus reads it."""
        registry = CollectorRegistry()
        if self._shared:
            MultiProcessCollector(registry, self._shared)  # type: ignore[no-untyped-call]
        else:
            registry.register(self._registry)
        registry.register(_State(self._service))
        return generate_latest(registry)


class _State(Collector):
    """What this worker knows; every worker knows the same."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterable[Metric]:
        service = self._service
        pods = GaugeMetricFamily(
            f"{PREFIX}pods", "Pods by pool and phase", labels=("pool", "phase")
        )
        for (pool, phase), count in service.table.phases().items():
            pods.add_metric((pool, phase), count)
        silent = GaugeMetricFamily(
            f"{PREFIX}pool_silent_seconds", "Since a pool was last heard", labels=("pool",)
        )
        trouble = GaugeMetricFamily(
            f"{PREFIX}pool_in_trouble", "1 if its batch system cannot be asked", labels=("pool",)
        )
        for pool, known in service.pools.known().items():
            silent.add_metric((pool,), service.pools.silent_s(known))
            trouble.add_metric((pool,), int(bool(service.pools.trouble(pool))))
        waiting = GaugeMetricFamily(
            f"{PREFIX}deletions_waiting", "Deletions not confirmed by the site", labels=("pool",)
        )
        for pool, count in service.deletions.waiting().items():
            waiting.add_metric((pool,), count)
        connected = GaugeMetricFamily(f"{PREFIX}nats_connected", "1 with a connection to NATS")
        connected.add_metric((), int(service.gateway.is_connected))
        return (pods, silent, trouble, waiting, connected, *self._of_orphans())

    def _of_orphans(self) -> Iterable[Metric]:
        orphans = self._service.orphans
        if orphans is None:
            return
        held = GaugeMetricFamily(
            f"{PREFIX}orphans_held", "Orphans that the brake holds back", labels=("pool",)
        )
        for pool, count in orphans.held.items():
            held.add_metric((pool,), count)
        yield held
        silent = GaugeMetricFamily(
            f"{PREFIX}kubernetes_silent_seconds", "Since Kubernetes last listed all pods"
        )
        silent.add_metric((), orphans.silent_s)
        yield silent
