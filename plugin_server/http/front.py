"""WSGI middleware before Flask: reads bodies, answers creates, and cached status requests.

The virtual kubelet requests one pod after the other, so the time of one cached status limits how
many pods a node can have; Flask's way to a view takes longer than all the rest. Creates gain a
fifth without it: their threads compete with each other, and with the loop.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterable
from typing import Any, Callable

from plugin_server.common.errors import Refused
from plugin_server.common.settings import Server
from plugin_server.http.api import JSON, error_response
from plugin_server.http.bodies import TooLarge, read_body
from plugin_server.pods.create import Creates
from plugin_server.pods.status import StatusRequests
from plugin_server.service.metrics import Counters

MIB = 1024 * 1024
CREATE_PATH, STATUS_PATH = "/create", "/status"
OTHER_BODY_LIMIT = 16 * MIB
ENDPOINTS = {
    CREATE_PATH: "create",
    STATUS_PATH: "status",
    "/delete": "delete",
    "/getLogs": "getLogs",
}

Environment = dict[str, Any]
StartResponse = Callable[..., Any]
Application = Callable[[Environment, StartResponse], Iterable[bytes]]


class Front:
    """WSGI middleware before the Flask application."""

    def __init__(
        self,
        application: Application,
        settings: Server,
        creates: Creates,
        statuses: StatusRequests,
        counters: Counters,
    ) -> None:
        self._application = application
        self._creates = creates
        self._statuses = statuses
        self._counters = counters
        self._limits = {
            **dict.fromkeys(ENDPOINTS, OTHER_BODY_LIMIT),
            CREATE_PATH: settings.largest_create_mib * MIB,
        }

    def __call__(self, environ: Environment, start_response: StartResponse) -> Iterable[bytes]:
        start = time.perf_counter()
        path = environ["PATH_INFO"]
        try:
            body = read_body(environ, self._limits.get(path, 0))
        except TooLarge as error:
            if path in ENDPOINTS:
                self._counters.count(ENDPOINTS[path], "refused", start)
            return error_response(error)(environ, start_response)
        if path == CREATE_PATH:
            return self._create(body, environ, start_response)
        if path == STATUS_PATH and environ["REQUEST_METHOD"] in ("GET", "POST"):
            cached = self._statuses.cached_response(body)
            if cached is not None:
                self._counters.count("status", "ok", start)
                return _respond(start_response, "200 OK", JSON, cached)
        environ["wsgi.input"] = io.BytesIO(body)
        return self._application(environ, start_response)

    def _create(
        self, body: bytes, environ: Environment, start_response: StartResponse
    ) -> Iterable[bytes]:
        try:
            with self._counters.call("create"):
                if environ["REQUEST_METHOD"] != "POST":
                    raise Refused(405, "Method Not Allowed")
                created = self._creates.create(body)
        except Exception as error:  # noqa: BLE001 (answered as Flask answers those of its views)
            return error_response(error)(environ, start_response)
        return _respond(start_response, "200 OK", JSON, created)


def _respond(start_response: StartResponse, status: str, kind: str, content: bytes) -> tuple[bytes]:
    headers = [("Content-Type", kind), ("Content-Length", str(len(content)))]
    start_response(status, headers)
    return (content,)
