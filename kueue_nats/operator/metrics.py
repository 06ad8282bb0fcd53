"""Prometheus metrics of the operator."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from kueue_nats.pools.tracker import PoolRecord
from kueue_nats.spec.masterqueue import NatsSource

PREFIX = "kueue_nats_"


class Metrics:
    """Metrics of this process."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self.rounds = Counter(
            f"{PREFIX}rounds", "Reconciliation rounds", ("outcome",), registry=registry
        )
        for outcome in ("done", "failed"):
            self.rounds.labels(outcome)  # there from the start, with 0
        self.seconds = Histogram(
            f"{PREFIX}round_cpu_seconds", "CPU time of a reconciliation round", registry=registry
        )
        self.writes = Counter(
            f"{PREFIX}writes", "Write requests to the Kubernetes API", registry=registry
        )
        self.leads = Gauge(
            f"{PREFIX}leads", "1 if this operator is the leader, else 0", registry=registry
        )
        self._silence = Gauge(
            f"{PREFIX}pool_silent_seconds",
            "Seconds since the last publication of a pool",
            ("pool",),
            registry=registry,
        )

    def set_silence(
        self, records: Mapping[tuple[NatsSource, str], PoolRecord], now_s: float
    ) -> None:
        """Set how long each pool has not been heard from."""
        self._silence.clear()
        for (_, pool), record in records.items():
            self._silence.labels(pool).set(now_s - record.heard_s)

    def page(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)
