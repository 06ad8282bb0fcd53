"""HTTP server of /healthz and /metrics, for probes and for Prometheus."""

from __future__ import annotations

import time
from typing import Callable

from prometheus_client import CONTENT_TYPE_LATEST

from templates.program.health_server import HealthServer, Page, line, listen


class Health:
    """Liveness: rounds are finished; no restart helps against an unreachable cluster."""

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._beat_s = time.monotonic()

    def beat(self) -> None:
        """Note that another round is done."""
        self._beat_s = time.monotonic()

    def error(self) -> str:
        """Return what is wrong; empty when nothing is."""
        silent = time.monotonic() - self._beat_s
        return "" if silent < self._longest_s else f"no round was finished for {silent:.0f} s"


def serve(address: str, health: Health, page: Callable[[], bytes]) -> HealthServer:
    """Answer in threads of its own, until ``stop``."""

    def healthz() -> Page:
        error = health.error()
        return line(503 if error else 200, error or "ok")

    def metrics() -> Page:
        return Page(200, CONTENT_TYPE_LATEST, page())

    server = HealthServer(listen("listen", address), {"/healthz": healthz, "/metrics": metrics})
    server.start()
    return server
