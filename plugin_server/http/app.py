"""Factory of the Flask application."""

from __future__ import annotations

from flask import Flask

from plugin_server.common.settings import Settings, metrics_directory
from plugin_server.http import api, health
from plugin_server.http.front import Front
from plugin_server.service.metrics import Counters, Metrics
from plugin_server.service.service import CountCallbacks, Service
from templates.program.health_server import Pages

SERVICE, PAGES = "interlink", "interlink-health"


def create_app(settings: Settings) -> Flask:
    """Return the application; the worker that serves it starts its service."""
    app = Flask("plugin_server", static_folder=None, template_folder=None)
    counters = Counters(watches_kubernetes=bool(settings.orphans.api_server))
    callbacks = CountCallbacks(counters.connected, counters.orphan_cancelled, counters.end_written)
    service = Service(settings, callbacks)
    pages = health.pages(service, Metrics(counters, service, metrics_directory()))
    app.register_blueprint(api.blueprint(service, counters, pages))
    app.register_error_handler(Exception, api.error_response)
    app.wsgi_app = Front(  # type: ignore[method-assign]
        app.wsgi_app, settings.server, service.creates, service.statuses, counters
    )
    app.extensions[SERVICE], app.extensions[PAGES] = service, pages
    return app


def service_of(app: Flask) -> Service:
    """Return the service of an application."""
    service = app.extensions[SERVICE]
    if not isinstance(service, Service):
        raise TypeError(SERVICE)
    return service


def health_pages_of(app: Flask) -> Pages:
    """Return the pages of an application for probes and Prometheus."""
    pages: Pages = app.extensions[PAGES]
    return pages
