"""Pools: what is known of them, and what the node offers because of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plugin_server.pods import ping
from plugin_server.state.pools import Pools
from templates.protocol.publications import Config, Resources
from templates.site.build_config import BuildConfig


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pools(clock: Clock) -> Pools:
    return Pools(60, clock)


def offered(pools: Pools) -> Any:
    return json.loads(ping.answer(pools)).get("resources")


def test_before_any_pool_was_heard_the_node_stays_as_it_is(pools: Pools) -> None:
    assert json.loads(ping.answer(pools)) == {"status": "ok"}


def test_the_node_offers_the_sum_in_quantities_that_are_texts(pools: Pools) -> None:
    one = {"cpu": "1500m", "memory": "1Gi", "pods": "10", "nvidia.com/gpu": "2"}
    two = {"cpu": "2", "memory": "1024", "pods": "5", "nvidia.com/gpu": "1", "amd.com/gpu": "4"}
    pools.update_resources(Resources("one", one))
    pools.update_resources(Resources("two", two))
    assert offered(pools) == {
        "cpu": "3500m",
        "memory": str(2**30 + 1024),
        "pods": "15",
        "accelerators": [
            {"resourceType": "amd.com/gpu", "available": "4"},
            {"resourceType": "nvidia.com/gpu", "available": "3"},
        ],
    }


def test_what_a_pool_offered_that_fell_silent_is_zero_and_not_left_out(
    pools: Pools, clock: Clock
) -> None:
    pools.update_resources(Resources("one", {"cpu": "4", "nvidia.com/gpu": "2"}))
    clock.now += 61
    pools.update_resources(Resources("two", {"cpu": "1"}))
    gone = [{"resourceType": "nvidia.com/gpu", "available": "0"}]
    assert offered(pools) == {"cpu": "1", "accelerators": gone}
    assert pools.alive() == ["two"]


def test_a_draining_pool_offers_nothing(pools: Pools) -> None:
    pools.update_resources(Resources("one", {"cpu": "4"}, draining=True))
    assert offered(pools) == {"cpu": "0"}


def test_a_pool_in_trouble_is_named_with_it(pools: Pools) -> None:
    pools.update_resources(Resources("one", {"cpu": "4"}, trouble="no valid token"))
    pools.mark_alive("two")
    assert pools.describe_alive() == "one (its batch system cannot be asked: no valid token), two"
    assert offered(pools) == {"cpu": "4"}  # its jobs run, and others wait there
    pools.update_resources(Resources("one", {"cpu": "4"}))
    assert pools.describe_alive() == "one, two"


def test_a_sign_of_life_keeps_a_pool_alive(pools: Pools, clock: Clock) -> None:
    pools.update_resources(Resources("one", {"cpu": "4"}))
    clock.now += 50
    pools.mark_alive("one")
    clock.now += 50
    assert offered(pools) == {"cpu": "4"}


def test_a_configuration_that_is_heard_wins_over_one_that_is_remembered(pools: Pools) -> None:
    heard, remembered = (Config("one", digest, BuildConfig()) for digest in ("new", "old"))
    assert pools.update_config(heard)
    assert not pools.update_config(heard)
    assert not pools.update_config(Config(heard.pool, heard.digest, BuildConfig()))
    pools.restore_config(remembered)
    assert pools.config("one") == heard
    pools.restore_config(remembered._replace(pool="two"))
    assert pools.config("two") is not None
    assert pools.alive() == ["one"]


def test_the_sum_stays_what_kubernetes_can_count(pools: Pools) -> None:
    for pool in range(3):
        pools.update_resources(Resources(f"p{pool}", {"cpu": str(2**53), "memory": str(2**62)}))
    assert offered(pools) == {"cpu": f"{2**63 - 1}m", "memory": str(2**63 - 1)}
