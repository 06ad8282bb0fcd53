"""How gunicorn runs the plugin: ``gunicorn --config python:plugin_server.gunicorn_conf ...``.

The worker is our own (``worker.py``). The loop is started after the fork, never before: it would
not survive it.
"""

from __future__ import annotations

import gc
import shutil
from typing import Any

from gunicorn.glogging import Logger

from plugin_server.common.settings import (
    bind_address,
    from_environment,
    metrics_directory,
    share_metrics,
)
from templates.common.errors import ConfigError

KEEP_ALIVE_S = 150  # interLink keeps its connections for 120 s, and must be the one who closes

try:
    _settings = from_environment()
except ConfigError as error:
    raise SystemExit(f"plugin_server: {error}") from None


class WithoutAccess(Logger):  # type: ignore[misc]
    """gunicorn's logger, without the line per request that it prepares although nobody wants it."""

    def access(self, *_: object, **__: object) -> None:
        """Nothing; /metrics counts the calls."""


logger_class = WithoutAccess
bind = [bind_address(_settings.listen)]
if _settings.health_listen:
    bind.append(_settings.health_listen)
workers = _settings.server.workers
worker_class = "plugin_server.worker.Worker"
threads = _settings.server.threads
keepalive = KEEP_ALIVE_S
graceful_timeout = _settings.server.graceful_timeout_s
timeout = 60
preload_app = False
accesslog = None
# What a proxy says of whom it speaks for is nothing to us: no address is looked up to believe it.
forwarded_allow_ips = "*"
secure_scheme_headers: dict[str, str] = {}
control_socket_disable = True  # it would lie in the home directory, one for all gunicorns
_level = _settings.logging.level.upper()
_form = {"()": "templates.program.log_format.formatter", "name": _settings.logging.format}
logconfig_dict = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"lines": _form},
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


def post_worker_init(worker: Any) -> None:
    """Start the loop of this worker; what was imported is no garbage, and never looked at again."""
    from plugin_server.http.app import service_of

    service = service_of(worker.wsgi)
    service.is_stopping = lambda: not worker.alive
    service.start()
    gc.collect()
    gc.freeze()


def worker_exit(_server: Any, worker: Any) -> None:
    """Stop it."""
    from plugin_server.http.app import service_of

    if worker.wsgi is not None:
        service_of(worker.wsgi).stop()


def child_exit(_server: Any, worker: Any) -> None:
    """Forget what only a living worker may say."""
    if metrics_directory():
        from prometheus_client.multiprocess import mark_process_dead

        mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]


def on_exit(_server: Any) -> None:
    """Leave nothing behind."""
    if metrics_directory():
        shutil.rmtree(metrics_directory(), ignore_errors=True)
