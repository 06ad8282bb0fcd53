"""WSGI middleware before Flask: reads bodies, and answers status requests from the cache.

The virtual kubelet requests one pod after the other, so the time of one cached status limits how
many pods a node can have; Flask's way to a view takes longer than all the rest.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterable
from typing import Any, Callable

from plugin_server.common.settings import Server
from plugin_server.http.bodies import TooLarge, read_body
from plugin_server.pods.status import StatusRequests
from plugin_server.service.metrics import Counters

MIB = 1024 * 1024
STATUS_PATH = "/status"
OTHER_BODY_LIMIT = 16 * MIB
ENDPOINTS = {"/create": "create", STATUS_PATH: "status", "/delete": "delete", "/getLogs": "getLogs"}

Environment = dict[str, Any]
StartResponse = Callable[..., Any]
Application = Callable[[Environment, StartResponse], Iterable[bytes]]


class Front:
    """WSGI middleware before the Flask application."""

    def __init__(
        self,
        application: Application,
        settings: Server,
        statuses: StatusRequests,
        counters: Counters,
    ) -> None:
        self._application = application
        self._statuses = statuses
        self._counters = counters
        self._limits = {
            **dict.fromkeys(ENDPOINTS, OTHER_BODY_LIMIT),
            "/create": settings.largest_create_mib * MIB,
        }

    def __call__(self, environ: Environment, start_response: StartResponse) -> Iterable[bytes]:
        start = time.perf_counter()
        path = environ["PATH_INFO"]
        try:
            body = read_body(environ, self._limits.get(path, 0))
        except TooLarge as error:
            if path in ENDPOINTS:
                self._counters.count(ENDPOINTS[path], "refused", start)
            return _respond(
                start_response, "413 Content Too Large", "text/plain", f"{error}\n".encode()
            )
        if path == STATUS_PATH and environ["REQUEST_METHOD"] in ("GET", "POST"):
            cached = self._statuses.cached_response(body)
            if cached is not None:
                self._counters.count("status", "ok", start)
                return _respond(start_response, "200 OK", "application/json", cached)
        environ["wsgi.input"] = io.BytesIO(body)
        return self._application(environ, start_response)


def _respond(start_response: StartResponse, status: str, kind: str, content: bytes) -> tuple[bytes]:
    headers = [("Content-Type", kind), ("Content-Length", str(len(content)))]
    start_response(status, headers)
    return (content,)
