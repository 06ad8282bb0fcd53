"""The Flask application, put together."""

from __future__ import annotations

import logging

from flask import Flask, Response

from plugin_server import api
from plugin_server.bridge import BridgeError
from plugin_server.errors import Refused
from plugin_server.metrics import Metrics
from plugin_server.service import Service
from plugin_server.settings import Settings, metrics_directory

logger = logging.getLogger(__name__)

EXTENSION = "interlink"


def create_app(settings: Settings) -> Flask:
    """The application; its service is started by the worker that serves it."""
    app = Flask("plugin_server", static_folder=None, template_folder=None)
    service = Service(settings)
    app.extensions[EXTENSION] = service
    app.register_blueprint(api.blueprint(service, Metrics(service, metrics_directory())))
    app.register_error_handler(Refused, api.refused)
    app.register_error_handler(BridgeError, _stopping)
    app.register_error_handler(Exception, _failed)
    return app


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
