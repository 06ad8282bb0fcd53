"""The HTTP interface: what interLink calls, and what Kubernetes and Prometheus call."""

from __future__ import annotations

import logging
import select
import socket
from typing import Callable

from flask import Blueprint, Response, request

from plugin_server.common.errors import Refused
from plugin_server.nats.bridge import BridgeError
from plugin_server.service.metrics import Counters
from plugin_server.service.service import Service
from templates.program.health_server import Page, Pages

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"

logger = logging.getLogger(__name__)


def blueprint(service: Service, counters: Counters, pages: Pages) -> Blueprint:
    """The routes; each of them takes bytes to a part of the service and its answer back."""
    api = Blueprint("interlink", __name__)

    @api.post("/create")
    def create() -> Response:
        with counters.call("create"):
            return Response(service.creates.create(_body()), content_type=JSON)

    @api.route("/delete", methods=["POST", "DELETE"])
    def delete() -> Response:
        with counters.call("delete"):
            service.deletes.delete(_body())
            return Response("deleted", content_type=TEXT)

    @api.route("/status", methods=["GET", "POST"])
    def status() -> Response:
        with counters.call("status"):
            return Response(service.statuses.answer(_body()), content_type=JSON)

    @api.route("/getLogs", methods=["GET", "POST"])
    def get_logs() -> Response:
        with counters.call("getLogs"):
            log = service.logs.open(_body(), _is_there(service, request.environ))
            return Response(log, content_type=TEXT)

    for path, page in pages.items():
        api.add_url_rule(path, path.strip("/"), _view(page))
    return api


def _view(page: Callable[[], Page]) -> Callable[[], Response]:
    """A page as Flask answers it."""

    def view() -> Response:
        status, content_type, content = page()
        return Response(content, status, content_type=content_type)

    return view


def _body() -> bytes:
    """The body, of any method; it has been read (``front.py``)."""
    body: bytes = request.environ["wsgi.input"].read()
    return body


def answer_to(error: Exception) -> Response:
    """One plain line for what went wrong, of which the log says more if nobody has foreseen it."""
    if isinstance(error, Refused):
        return refused(error)
    if isinstance(error, BridgeError):
        return refused(Refused(503, f"the plugin cannot do it now: {error}"))
    code, name = getattr(error, "code", None), getattr(error, "name", "")
    if isinstance(code, int):  # one of Flask's own: an unknown path or method
        return refused(Refused(code, name))
    logger.error("a request failed", exc_info=error)
    return refused(Refused(500, "the plugin has failed; its log says more"))


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
