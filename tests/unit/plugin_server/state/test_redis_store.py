"""Redis: quicker with it, right without it. A real one, started and killed at will."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plugin_server.state import redis_store
from scripts.lib.interlink import free_port
from templates.job.records import TERMINATED, ContainerState, End
from tests.support.nats_server import NatsServer
from tests.support.redis_server import RedisServer
from tests.unit.plugin_server.conftest import Plugin, until
from tests.unit.plugin_server.pod_builders import containers, create_request, job_of, pod, status
from tests.unit.plugin_server.site import Site

MakePlugin = Callable[..., Plugin]


@pytest.fixture
def redis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisServer]:
    monkeypatch.setattr(redis_store, "SAVE_EVERY_S", 0.05)
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.stop()


def knows_config(redis: RedisServer, pool: str) -> bool:
    with redis.client() as client:
        return bool(client.hexists("interlink:configs", pool))


def keys(redis: RedisServer) -> set[str]:
    with redis.client() as client:
        found: Any = client.keys("*")
    return {key.decode() for key in found}


def test_a_restarted_plugin_can_translate_before_any_site_has_spoken(
    make_plugin: MakePlugin, nats: NatsServer, redis: RedisServer
) -> None:
    with Site(nats.url, "away"):
        first = make_plugin(redis_url=redis.url)
        until(lambda: knows_config(redis, "away"))
    first.service.stop()
    second = make_plugin(redis_url=redis.url)
    assert second.service.pools.config("away") is not None
    assert second.service.pools.alive() == []


def test_a_restarted_plugin_has_all_states_from_the_sites_and_none_from_redis(
    make_plugin: MakePlugin, site: Site, redis: RedisServer
) -> None:
    queued, ended, lost = (pod() for _ in range(3))
    first = make_plugin(redis_url=redis.url)
    until(lambda: knows_config(redis, site.pool))
    end = ContainerState("", TERMINATED, end=End(3, 0, "", "", 0, 0))
    over = status(ended, "ended", exit_code=3, containers=containers(ended, main=end))
    site.say(status(queued, "queued"), over, status(lost))
    until(lambda: len(first.status(queued, ended, lost)) == 3)
    told = first.status(queued, ended)
    first.service.stop()
    assert keys(redis) == {"interlink:configs"}
    del site.jobs[job_of(lost)]
    second = make_plugin(redis_url=redis.url)
    until(lambda: second.service.table.count(site.pool) == 2)
    assert second.status(queued, ended, lost) == told


def test_states_that_former_versions_kept_are_removed(
    make_plugin: MakePlugin, site: Site, redis: RedisServer
) -> None:
    first = make_plugin(redis_url=redis.url)
    until(lambda: knows_config(redis, site.pool))
    first.service.stop()
    with redis.client() as client:
        client.hset(f"interlink:states:{site.pool}", "some-uid", "{}")
        client.hset("another:states:x", "some-uid", "{}")
    make_plugin(redis_url=redis.url)
    assert keys(redis) == {"interlink:configs", "another:states:x"}


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
        until(lambda: [delete.name for delete in site.deleted] == [job_of(raw)])
    until(lambda: second.service.deletions.count_pending() == {"away": 0})


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
    until(lambda: knows_config(redis, site.pool))


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
    plugin = make_plugin(redis_url=redis.url)
    assert plugin.service.pools.config("junk") is None
    assert plugin.create(create_request(pod())).status_code == 200
