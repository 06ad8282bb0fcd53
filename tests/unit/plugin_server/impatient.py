"""The application with other patience: a second for clients that do not read, an hour for sites."""

from __future__ import annotations

from plugin_server.http import log_client
from plugin_server.nats import log_reader
from plugin_server.wsgi import app

__all__ = ["app"]

log_client.STUCK_S = log_client.LOOK_S = 1.0
log_reader.FIRST_PAUSE_S = log_reader.LONGEST_PAUSE_S = log_reader.PAUSE_S = 3600.0
