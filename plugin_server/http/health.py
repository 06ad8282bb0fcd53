"""The pages for who watches the plugin: probes and Prometheus."""

from __future__ import annotations

from plugin_server.service.metrics import Metrics
from plugin_server.service.service import Service
from templates.program.health_server import Page, Pages, line


def pages(service: Service, metrics: Metrics) -> Pages:
    """Return them by path."""

    def healthz() -> Page:
        alive = service.is_alive()
        words = "ok" if alive else "the loop, or its connection to NATS, does not answer"
        return line(200 if alive else 503, words)

    def readyz() -> Page:
        ready = service.is_ready()
        words = "ok" if ready else f"not connected to NATS: {service.gateway.trouble or 'silent'}"
        return line(200 if ready else 503, words)

    def metrics_page() -> Page:
        return Page(200, metrics.content_type, metrics.page())

    return {"/healthz": healthz, "/readyz": readyz, "/metrics": metrics_page}
