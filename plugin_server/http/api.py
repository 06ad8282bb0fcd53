"""Routes of the HTTP interface, but for creates: ``front.py`` answers those."""

from __future__ import annotations

import logging
from typing import Callable

from flask import Blueprint, Response, request

from plugin_server.common.errors import Refused
from plugin_server.http.log_client import LogClient
from plugin_server.nats.bridge import BridgeError
from plugin_server.service.metrics import Counters
from plugin_server.service.service import Service
from templates.program.health_server import Page, Pages

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"

logger = logging.getLogger(__name__)


def blueprint(service: Service, counters: Counters, pages: Pages) -> Blueprint:
    """Return the routes; each passes a body to a part of the service and returns the response."""
    api = Blueprint("interlink", __name__)

    @api.route("/delete", methods=["POST", "DELETE"])
    def delete() -> Response:
        with counters.call("delete"):
            service.deletes.delete(_body())
            return Response("deleted", content_type=TEXT)

    @api.route("/status", methods=["GET", "POST"])
    def status() -> Response:
        with counters.call("status"):
            return Response(service.statuses.respond(_body()), content_type=JSON)

    @api.route("/getLogs", methods=["GET", "POST"])
    def get_logs() -> Response:
        with counters.call("getLogs"):
            client = LogClient(request.environ, service.is_stopping)
            return Response(service.logs.open(_body(), client), content_type=TEXT)

    for path, page in pages.items():
        api.add_url_rule(path, path.strip("/"), _view(page))
    return api


def _view(page: Callable[[], Page]) -> Callable[[], Response]:
    """Return a Flask view of a page."""

    def view() -> Response:
        status, content_type, content = page()
        return Response(content, status, content_type=content_type)

    return view


def _body() -> bytes:
    """Return the body, of any method; ``front.py`` has read it."""
    body: bytes = request.environ["wsgi.input"].read()
    return body


def error_response(error: Exception) -> Response:
    """Return an error as one line of text; an unexpected one is logged with its traceback."""
    if isinstance(error, Refused):
        return plain_error(error)
    if isinstance(error, BridgeError):
        return plain_error(Refused(503, f"the plugin cannot do it now: {error}"))
    code, name = getattr(error, "code", None), getattr(error, "name", "")
    if isinstance(code, int):  # Flask's own: an unknown path or method
        return plain_error(Refused(code, name))
    logger.error("a request failed", exc_info=error)
    return plain_error(Refused(500, "the plugin has failed; its log says more"))


def plain_error(error: Refused) -> Response:
    """Return the error as one line of text: interLink shows it to the user."""
    return Response(f"{error}\n", error.status, content_type=TEXT)
