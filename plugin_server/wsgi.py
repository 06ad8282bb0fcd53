"""The application as gunicorn finds it: ``plugin_server.wsgi:app``, with gunicorn_conf.py."""

from __future__ import annotations

from plugin_server.app import create_app
from plugin_server.settings import from_environment

app = create_app(from_environment())
