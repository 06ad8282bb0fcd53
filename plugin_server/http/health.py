"""Pages for probes and Prometheus."""

from __future__ import annotations

from plugin_server.service.metrics import Metrics
from plugin_server.service.service import Service
from templates.program.health_server import Page, Pages, line


def pages(service: Service, metrics: Metrics) -> Pages:
    """Return the pages by path."""

    def healthz() -> Page:
        is_alive = service.is_alive()
        message = "ok" if is_alive else "the loop, or its connection to NATS, does not answer"
        return line(200 if is_alive else 503, message)

    def readyz() -> Page:
        is_ready = service.is_ready()
        message = (
            "ok"
            if is_ready
            else f"not connected to NATS: {service.gateway.connection_error or 'silent'}"
        )
        return line(200 if is_ready else 503, message)

    def metrics_page() -> Page:
        return Page(200, metrics.content_type, metrics.page())

    return {"/healthz": healthz, "/readyz": readyz, "/metrics": metrics_page}
