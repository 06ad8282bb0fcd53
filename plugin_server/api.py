"""The HTTP interface: what interLink calls, and what Kubernetes and Prometheus call."""

from __future__ import annotations

import select
import socket
from typing import Callable

from flask import Blueprint, Response, request

from plugin_server.errors import Refused
from plugin_server.metrics import Metrics
from plugin_server.service import Service

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
HEALTH = ("/healthz", "/readyz", "/metrics")


def blueprint(service: Service, metrics: Metrics) -> Blueprint:
    """The routes; each of them takes bytes to a part of the service and its answer back."""
    api = Blueprint("interlink", __name__)

    @api.post("/create")
    def create() -> Response:
        with metrics.call("create"):
            return Response(service.creates.create(_body()), content_type=JSON)

    @api.route("/delete", methods=["POST", "DELETE"])
    def delete() -> Response:
        with metrics.call("delete"):
            service.delete(_body())
            return Response("deleted", content_type=TEXT)

    @api.route("/status", methods=["GET", "POST"])
    def status() -> Response:
        with metrics.call("status"):
            return Response(service.statuses.answer(_body()), content_type=JSON)

    @api.route("/getLogs", methods=["GET", "POST"])
    def get_logs() -> Response:
        with metrics.call("getLogs"):
            log = service.logs.open(_body(), _is_there(service, request.environ))
            return Response(log, content_type=TEXT)

    @api.get("/healthz")
    def healthz() -> Response:
        alive = service.is_alive()
        words = "ok" if alive else "the loop, or its connection to NATS, does not answer"
        return Response(f"{words}\n", 200 if alive else 503, content_type=TEXT)

    @api.get("/readyz")
    def readyz() -> Response:
        ready = service.is_ready()
        words = "ok" if ready else f"not connected to NATS: {service.gateway.trouble or 'silent'}"
        return Response(f"{words}\n", 200 if ready else 503, content_type=TEXT)

    @api.get("/metrics")
    def metrics_page() -> Response:
        return Response(metrics.page(), content_type=metrics.content_type)

    return api


def _body() -> bytes:
    """The body, of any method; Flask's own way to it takes as long as the rest of a status."""
    body: bytes = request.environ["wsgi.input"].read()
    return body


def refused(error: Refused) -> Response:
    """One plain line: interLink shows it to the user."""
    return Response(f"{error}\n", error.status, content_type=TEXT)


def _is_there(service: Service, environ: dict[str, object]) -> Callable[[], bool]:
    """Whether the client still reads: a follower that is gone says nothing while it is quiet.

    When the plugin stops, its followers end; they follow again elsewhere.
    """
    client = environ.get("gunicorn.socket")
    if not isinstance(client, socket.socket):
        return lambda: not service.is_stopping()

    def is_there() -> bool:
        try:
            ready = select.poll()
            ready.register(client, select.POLLIN)
            if service.is_stopping():
                return False
            return not ready.poll(0) or client.recv(1, socket.MSG_PEEK) != b""
        except OSError:
            return False

    return is_there
