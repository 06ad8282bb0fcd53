"""Configuration of gunicorn: ``gunicorn --config python:plugin_server.gunicorn_conf ...``.

The loop is started after the fork: it would not survive it. The port for health and metrics is
opened before the fork, so that all workers share it, and is not served by gunicorn: its threads
are interLink's.
"""

from __future__ import annotations

import gc
import shutil
import socket
from typing import Any

from gunicorn.glogging import Logger

from plugin_server.common.settings import (
    bind_address,
    from_environment,
    metrics_directory,
    share_metrics,
)
from templates.common.errors import ConfigError
from templates.program.health_server import HealthServer, listen

KEEP_ALIVE_S = 150  # longer than interLink's 120 s: interLink must close connections first
IDLE_CONNECTIONS = 1000  # kept open for interLink's next requests, besides busy ones
MAX_LOG_CHARACTERS = 200

_listeners: list[socket.socket] = []  # of the port for health and metrics, if configured
_servers: list[HealthServer] = []  # of this worker

try:
    _settings = from_environment()
except ConfigError as error:
    raise SystemExit(f"plugin_server: {error}") from None


class PlainLogger(Logger):  # type: ignore[misc]
    """gunicorn's logger without request data, which may hold secrets."""

    def access(self, *_: object, **__: object) -> None:
        """Log no line per request; /metrics counts the calls."""

    def debug(self, *_: object, **__: object) -> None:
        """Log nothing: these lines hold request heads, and are of no use to an admin."""

    def warning(self, msg: object, *args: object, **kwargs: object) -> None:
        """Log a prefix: the warning about an invalid request contains the request."""
        super().warning(msg if args else str(msg)[:MAX_LOG_CHARACTERS], *args, **kwargs)


logger_class = PlainLogger
bind = [bind_address(_settings.listen)]
workers = _settings.server.workers
worker_class = "gthread"
threads = _settings.server.threads
worker_connections = threads + IDLE_CONNECTIONS
limit_request_fields = 32  # interLink sends six; more, or a longer head, are rejected
forwarder_headers = ""  # no header may override what gunicorn knows of a request
keepalive = KEEP_ALIVE_S
graceful_timeout = _settings.server.graceful_timeout_s
timeout = 60
preload_app = False
accesslog = None
control_socket_disable = True  # it would be in the home directory, one for all gunicorns
_level = _settings.logging.level.upper()
_formatter = {"()": "templates.program.log_format.formatter", "name": _settings.logging.format}
logconfig_dict = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"lines": _formatter},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "lines"}},
    "root": {"level": _level, "handlers": ["stderr"]},
    "loggers": {
        "gunicorn.error": {"level": _level, "propagate": True, "handlers": []},
        "gunicorn.access": {"level": "WARNING", "propagate": True, "handlers": []},
    },
}

if workers > 1:
    try:
        share_metrics(_settings.state_directory)
    except OSError as error:
        raise SystemExit(f"plugin_server: state_directory: {error}") from None


def on_starting(_server: Any) -> None:
    """Open the port for health and metrics, in the master: its workers share it."""
    if _settings.health_listen:
        try:
            _listeners.append(listen("health_listen", _settings.health_listen))
        except ConfigError as error:
            raise SystemExit(f"plugin_server: {error}") from None


def post_worker_init(worker: Any) -> None:
    """Start the service of this worker; exempt what was imported from garbage collection."""
    from plugin_server.http.app import health_pages_of, service_of

    service_of(worker.wsgi).start(is_stopping=lambda: not worker.alive)
    for listener in _listeners:
        _servers.append(HealthServer(listener, health_pages_of(worker.wsgi)))
        _servers[-1].start()
    gc.collect()
    gc.freeze()


def worker_exit(_server: Any, worker: Any) -> None:
    """Stop the service and the port for health and metrics."""
    from plugin_server.http.app import service_of

    for server in _servers:
        server.stop()
    if worker.wsgi is not None:
        service_of(worker.wsgi).stop()


def child_exit(_server: Any, worker: Any) -> None:
    """Remove the metrics that only a running worker has."""
    if metrics_directory():
        from prometheus_client.multiprocess import mark_process_dead

        mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]


def on_exit(_server: Any) -> None:
    """Remove the shared metrics directory."""
    if metrics_directory():
        shutil.rmtree(metrics_directory(), ignore_errors=True)
