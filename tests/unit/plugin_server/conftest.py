"""A real nats-server, a site that answers on it, and the plugin's application."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from plugin_server.common.settings import Settings, load
from plugin_server.http.app import create_app, service_of
from tests.support.nats_server import NatsServer
from tests.unit.plugin_server.site import Site


@pytest.fixture
def site(nats: NatsServer) -> Iterator[Site]:
    with Site(nats.url) as found:
        yield found


def settings_for(server: NatsServer, **changes: Any) -> Settings:
    variables = {"INTERLINK_NATS_SERVERS": server.url}
    variables.update({f"INTERLINK_{key.upper()}": str(value) for key, value in changes.items()})
    return load(variables)


class Plugin:
    """The application, in this process, and how interLink speaks to it."""

    def __init__(self, app: Flask) -> None:
        self.service = service_of(app)
        self.client: FlaskClient = app.test_client()

    def create(self, request: Any) -> Any:
        return self.client.post("/create", data=json.dumps(request))

    def status(self, *pods: dict[str, Any]) -> list[dict[str, Any]]:
        answer = self.client.get("/status", data=json.dumps(pods))
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.get_json()
        return found

    def delete(self, pod: dict[str, Any]) -> Any:
        return self.client.post("/delete", data=json.dumps(pod))


def until(condition: Callable[[], Any], seconds: float = 10) -> Any:
    """Wait for something to become true, and return it."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it has not come about"
        time.sleep(0.01)
    return found


@pytest.fixture
def make_plugin(nats: NatsServer, tmp_path: Path) -> Iterator[Callable[..., Plugin]]:
    made: list[Plugin] = []

    def make(**changes: Any) -> Plugin:
        plugin = Plugin(create_app(settings_for(nats, **changes)))
        plugin.service.start()
        made.append(plugin)
        return plugin

    yield make
    for plugin in made:
        plugin.service.stop()


@pytest.fixture
def plugin(make_plugin: Callable[..., Plugin], site: Site) -> Plugin:
    """The plugin, once it has heard of the site."""
    found = make_plugin()
    until(lambda: found.service.pools.config(site.pool))
    return found
