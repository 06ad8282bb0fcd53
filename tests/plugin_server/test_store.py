"""Redis: quicker with it, right without it. A real one, started and killed at will."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plugin_server import store
from scripts.lib.interlink import free_port
from tests.nats_server import NatsServer
from tests.plugin_server.conftest import Plugin, until
from tests.plugin_server.pods import create_request, job_of, pod, status
from tests.plugin_server.site import Site
from tests.redis_server import RedisServer

MakePlugin = Callable[..., Plugin]


@pytest.fixture
def redis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisServer]:
    monkeypatch.setattr(store, "SAVE_EVERY_S", 0.05)
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.stop()


def saved(redis: RedisServer, pool: str = "slurm-a") -> dict[str, Any]:
    with redis.client() as client:
        found: Any = client.hgetall(f"interlink:states:{pool}")
    return {uid.decode(): json.loads(raw) for uid, raw in found.items()}


def knows_config(redis: RedisServer, pool: str) -> bool:
    with redis.client() as client:
        return bool(client.hexists("interlink:configs", pool))


def test_a_restarted_plugin_knows_its_pods_before_any_site_has_spoken(
    make_plugin: MakePlugin, nats: NatsServer, redis: RedisServer
) -> None:
    raw = pod(pool="away")
    with Site(nats.url, "away") as site:
        first = make_plugin(redis_url=redis.url)
        until(lambda: first.service.pools.config("away"))
        site.say(status(raw, "queued", message="Priority"))
        until(lambda: raw["metadata"]["uid"] in saved(redis, "away"))
        until(lambda: knows_config(redis, "away"))
    first.service.stop()
    second = make_plugin(redis_url=redis.url)
    assert len(second.status(raw)) == 1
    assert second.service.pools.config("away") is not None
    assert second.service.pools.alive() == []


def test_a_delete_outlives_a_plugin_without_a_directory(
    make_plugin: MakePlugin, nats: NatsServer, redis: RedisServer
) -> None:
    first = make_plugin(redis_url=redis.url)
    raw = pod(pool="away")
    first.delete(raw)
    first.service.stop()
    second = make_plugin(redis_url=redis.url)
    assert second.create(create_request(raw)).status_code == 409
    with Site(nats.url, "away") as site:
        until(lambda: [delete.job for delete in site.deleted] == [job_of(raw)])
    until(lambda: second.service.deletions.waiting() == {"away": 0})


def test_what_a_site_says_wins_over_what_was_remembered(
    make_plugin: MakePlugin, site: Site, redis: RedisServer
) -> None:
    raw = pod()
    first = make_plugin(redis_url=redis.url)
    site.say(status(raw, "queued"))
    until(lambda: raw["metadata"]["uid"] in saved(redis))
    first.service.stop()
    site.jobs.clear()
    second = make_plugin(redis_url=redis.url)
    until(lambda: second.status(raw) == [])
    until(lambda: saved(redis) == {})


def test_nothing_is_wrong_when_it_dies_and_comes_back_empty(
    make_plugin: MakePlugin, site: Site, redis: RedisServer
) -> None:
    plugin = make_plugin(redis_url=redis.url)
    until(lambda: plugin.service.pools.config(site.pool))
    redis.stop()
    raw = pod()
    assert plugin.create(create_request(raw)).status_code == 200
    assert plugin.status(raw)[0]["JID"] == job_of(raw)
    redis.start()
    until(lambda: raw["metadata"]["uid"] in saved(redis))


def test_nothing_is_wrong_when_it_was_never_there(make_plugin: MakePlugin, site: Site) -> None:
    plugin = make_plugin(redis_url=f"redis://127.0.0.1:{free_port()}/0")
    until(lambda: plugin.service.pools.config(site.pool))
    assert plugin.create(create_request(pod())).status_code == 200


@pytest.mark.parametrize("junk", [b"", b"\xff", b"[]", b"{}", b'{"v": 1}', b'{"job": "x"}', b"7"])
def test_junk_in_it_is_passed_over(
    make_plugin: MakePlugin, site: Site, redis: RedisServer, junk: bytes
) -> None:
    first = make_plugin(redis_url=redis.url)
    until(lambda: knows_config(redis, site.pool))
    first.service.stop()
    with redis.client() as client:
        client.hset("interlink:configs", "junk", junk)
        client.hset(f"interlink:states:{site.pool}", "some-uid", junk)
    plugin = make_plugin(redis_url=redis.url)
    assert plugin.service.pools.config("junk") is None
    assert plugin.create(create_request(pod())).status_code == 200
