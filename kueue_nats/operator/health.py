"""HTTP server of /healthz and /metrics, for probes and for Prometheus."""

from __future__ import annotations

import http.server
import socket
import threading
import time
from typing import Callable

from prometheus_client import CONTENT_TYPE_LATEST

from templates.common.errors import ConfigError

PLAIN = "text/plain; charset=utf-8"


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


class _Server6(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6


class _Handler(http.server.BaseHTTPRequestHandler):
    health: Health
    page: Callable[[], bytes]

    def do_GET(self) -> None:
        """Answer a request; the name is http.server's."""
        if self.path == "/healthz":
            error = self.health.error()
            self._answer(503 if error else 200, (error or "ok").encode() + b"\n", PLAIN)
        elif self.path == "/metrics":
            self._answer(200, type(self).page(), CONTENT_TYPE_LATEST)
        else:
            self._answer(404, b"here are /healthz and /metrics\n", PLAIN)

    def _answer(self, status: int, content: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: probes come every few seconds."""


def serve(
    listen: str, health: Health, page: Callable[[], bytes]
) -> http.server.ThreadingHTTPServer:
    """Serve in threads of its own, until ``shutdown``."""
    handler = type("Handler", (_Handler,), {"health": health, "page": staticmethod(page)})
    host, _, port = listen.rpartition(":")
    try:
        kind = _Server6 if ":" in host else http.server.ThreadingHTTPServer
        server = kind((host.strip("[]"), int(port)), handler)
    except OSError as error:
        raise ConfigError("listen", f"{listen}: {error.strerror or error}") from None
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="web", daemon=True).start()
    return server
