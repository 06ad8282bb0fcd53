"""The Flask application, put together."""

from __future__ import annotations

import logging
from typing import Callable, Optional

from flask import Flask, Response, request

from plugin_server import api
from plugin_server.bridge import BridgeError
from plugin_server.errors import Refused
from plugin_server.metrics import Metrics
from plugin_server.service import Service
from plugin_server.settings import Settings, metrics_directory, port_of

logger = logging.getLogger(__name__)

EXTENSION = "interlink"


def create_app(settings: Settings) -> Flask:
    """The application; its service is started by the worker that serves it."""
    app = Flask("plugin_server", static_folder=None, template_folder=None)
    service = Service(settings)
    app.extensions[EXTENSION] = service
    app.register_blueprint(api.blueprint(service, Metrics(service, metrics_directory())))
    if settings.health_listen:
        app.before_request(_only_health_at(port_of(settings.health_listen)))
    app.register_error_handler(Refused, api.refused)
    app.register_error_handler(BridgeError, _stopping)
    app.register_error_handler(Exception, _failed)
    return app


def _only_health_at(port: str) -> Callable[[], Optional[Response]]:
    """Refuse all else at that port, which others than interLink can reach.

    The port is the server's own word. On a Unix socket it would be the client's, and there it can
    only hurt itself.
    """

    def refuse() -> Optional[Response]:
        if request.environ["SERVER_PORT"] == port and request.path not in api.HEALTH:
            return api.refused(Refused(404, f"here are {', '.join(api.HEALTH)}"))
        return None

    return refuse


def service_of(app: Flask) -> Service:
    """The service of an application."""
    service = app.extensions[EXTENSION]
    if not isinstance(service, Service):
        raise TypeError(EXTENSION)
    return service


def _stopping(error: BridgeError) -> Response:
    return api.refused(Refused(503, f"the plugin cannot do it now: {error}"))


def _failed(error: Exception) -> Response:
    """An unknown path or method; or what nobody has foreseen, the rest of which the log says."""
    code, name = getattr(error, "code", None), getattr(error, "name", "")
    if isinstance(code, int):  # one of Flask's own
        return api.refused(Refused(code, name))
    logger.error("a request failed", exc_info=error)
    return api.refused(Refused(500, "the plugin has failed; its log says more"))
