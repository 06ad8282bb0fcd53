"""The HTTP interface: what interLink calls, and what Kubernetes and Prometheus call."""

from __future__ import annotations

import asyncio
import logging
import select
import socket
import time
from collections.abc import Coroutine
from typing import Any, Callable

from flask import Blueprint, Response, request

from plugin_server.common.errors import Refused
from plugin_server.nats.bridge import BridgeError
from plugin_server.service.metrics import Metrics
from plugin_server.service.service import Service

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
HEALTH = ("/healthz", "/readyz", "/metrics")
LATER = "plugin_server.later"
"""Where our worker's environment takes a coroutine for the answer; under any other server, and for
all other paths than those below, the answer is waited for."""
NEVER_BLOCK = frozenset(("/create", "/status"))
"""What our worker may call in the loop's thread."""

logger = logging.getLogger(__name__)


class Answer(Response):
    """Bytes that are ready, sent without another look at what an answer might need besides."""

    def __init__(self, content: bytes, content_type: str) -> None:
        super().__init__(content, content_type=content_type)
        self._content = content

    def __call__(self, _: Any, start_response: Callable[..., Any]) -> Any:
        headers = [("Content-Type", self.content_type), ("Content-Length", str(len(self._content)))]
        start_response(self.status, headers)
        return (self._content,)


class _NotYet(Response):
    """Stands for the answer of a coroutine, and is never sent."""

    def __call__(self, *_: Any) -> Any:
        return ()


_NOT_YET = _NotYet()


def blueprint(service: Service, metrics: Metrics) -> Blueprint:
    """The routes; each of them takes bytes to a part of the service and its answer back."""
    api = Blueprint("interlink", __name__)

    @api.post("/create")
    def create() -> Response:
        return _when_done(service, created(_body()))

    async def created(body: bytes) -> Response:
        with metrics.call("create"):
            return Answer(await service.creates.create(body), JSON)

    @api.route("/delete", methods=["POST", "DELETE"])
    def delete() -> Response:
        with metrics.call("delete"):
            service.delete(_body())
            return Response("deleted", content_type=TEXT)

    @api.route("/status", methods=["GET", "POST"])
    def status() -> Response:
        body, start = _body(), time.perf_counter()
        known = service.statuses.known(body)
        if known is None:
            return _when_done(service, asyncio.to_thread(looked_up, body))
        metrics.count("status", "ok", start)
        return Answer(known, JSON)

    def looked_up(body: bytes) -> Response:
        with metrics.call("status"):
            return Answer(service.statuses.answer(body), JSON)

    @api.route("/getLogs", methods=["GET", "POST"])
    def get_logs() -> Response:
        with metrics.call("getLogs"):
            log = service.logs.open(_body(), _is_there(service, request.environ))
            return Response(log, content_type=TEXT)

    _add_health(api, service, metrics)
    return api


def _add_health(api: Blueprint, service: Service, metrics: Metrics) -> None:
    """The routes for who watches the plugin."""

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


def _body() -> bytes:
    """The body, of any method; Flask's own way to it takes as long as the rest of a status."""
    body: bytes = request.environ["wsgi.input"].read()
    return body


def _when_done(service: Service, work: Coroutine[Any, Any, Response]) -> Response:
    """The answer that a coroutine brings."""
    later = request.environ.get(LATER)
    if later is None:
        return service.bridge.call(work, service.longest_s)
    later.append(_told(work))
    return _NOT_YET


async def _told(work: Coroutine[Any, Any, Response]) -> Response:
    try:
        return await work
    except Exception as error:  # noqa: BLE001 (logged there if nobody has foreseen it)
        return answer_to(error)


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
