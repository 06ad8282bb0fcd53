"""The application as gunicorn finds it: ``plugin_server.wsgi:app``, with gunicorn_conf.py."""

from __future__ import annotations

from plugin_server.common.settings import from_environment
from plugin_server.http.app import create_app

app = create_app(from_environment())
