"""The Flask application, put together."""

from __future__ import annotations

from typing import Callable, Optional

from flask import Flask, Response, request

from plugin_server.common.errors import Refused
from plugin_server.common.settings import Settings, metrics_directory, port_of
from plugin_server.http import api
from plugin_server.service.metrics import Metrics
from plugin_server.service.service import Service

EXTENSION = "interlink"


def create_app(settings: Settings) -> Flask:
    """The application; its service is started by the worker that serves it."""
    app = Flask("plugin_server", static_folder=None, template_folder=None)
    service = Service(settings)
    app.extensions[EXTENSION] = service
    app.register_blueprint(api.blueprint(service, Metrics(service, metrics_directory())))
    if settings.health_listen:
        app.before_request(_only_health_at(port_of(settings.health_listen)))
    app.register_error_handler(Exception, api.answer_to)
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
