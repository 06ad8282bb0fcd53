"""What pools have said, when, and what of it counts."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kueue_nats.pools import tracker as offers_module
from kueue_nats.pools.tracker import (
    FORGET_S,
    MAX_POOLS,
    PoolOffer,
    PoolTracker,
    current_offers,
    restored_record,
)
from kueue_nats.spec.masterqueue import MAX_SECONDS, NatsFlavor, NatsSource
from templates.protocol.publications import Resources
from tests.unit.kueue_nats.masters import SOURCE, heard, master

OTHER = NatsSource("nats://elsewhere", None, "interlink.resources")
START = 1_000.0  # of the clock for timeouts
DAY = 1_700_000_000.0


def flavor(**options: Any) -> NatsFlavor:
    nats = master(heard(nats=options)).groups[0].nats
    assert nats is not None
    return nats


class Pools:
    """A tracker, and a clock to wind."""

    def __init__(self) -> None:
        self.tracker = PoolTracker()
        self.now_s = START

    def say(self, pool: str, after_s: float = 0, source: NatsSource = SOURCE, **more: Any) -> bool:
        self.now_s += after_s
        quotas = more.pop("quotas", {"cpu": "4"})
        said = Resources(pool, quotas, **more)
        return self.tracker.record(source, said, self.now_s, DAY + self.now_s)

    def offers(self, nats: NatsFlavor | None = None, after_s: float = 0) -> list[PoolOffer]:
        self.now_s += after_s
        return current_offers(self.tracker.snapshot(), nats or flavor(), self.now_s)

    def quotas(self, after_s: float = 0, **options: Any) -> dict[str, Fraction]:
        (offer,) = self.offers(flavor(**options), after_s)
        return dict(offer.quotas)


@pytest.fixture
def pools() -> Pools:
    return Pools()


# --- offers ---------------------------------------------------------------------------------------


def test_what_a_pool_says_first_counts_at_once(pools: Pools) -> None:
    pools.say("a", labels=("x=y",), taints=("k=v:NoSchedule",), quotas={"cpu": "4", "x/gpu": "2"})
    assert pools.offers() == [
        PoolOffer("a", {"cpu": Fraction(4), "x/gpu": Fraction(2)}, ("x=y",), ("k=v:NoSchedule",))
    ]


def test_pools_by_pattern_are_those_that_were_heard_by_name(pools: Pools) -> None:
    for pool in ("gpu-2", "b", "gpu-1", "agpu-1", "gpu-10"):
        pools.say(pool)
    assert [one.pool for one in pools.offers(flavor(poolRegExp="gpu-[0-9]"))] == ["gpu-1", "gpu-2"]


def test_pools_by_list_are_in_its_order_and_named_before_they_are_heard(pools: Pools) -> None:
    for pool in ("a", "b", "c"):
        pools.say(pool)
    found = pools.offers(flavor(pools=["c", "z", "a"]))
    assert [(one.pool, one.lost) for one in found] == [
        ("c", ""),
        ("z", "not heard of yet"),
        ("a", ""),
    ]


def test_pools_of_another_source_are_others(pools: Pools) -> None:
    pools.say("a", source=OTHER)
    assert pools.offers() == []
    assert [one.pool for one in pools.offers(flavor(natsConnector="nats://elsewhere"))] == ["a"]


def test_a_pool_is_lost_after_its_timeout(pools: Pools) -> None:
    pools.say("a")
    nats = flavor(poolTimeout=30)
    assert pools.offers(nats, after_s=29.9)[0].lost == ""
    assert pools.offers(nats, after_s=0.1)[0].lost == "not heard of for 30 s (poolTimeout)"
    pools.say("a")
    assert pools.offers(nats)[0].lost == ""


def test_what_no_resource_can_be_called_does_not_count(pools: Pools) -> None:
    pools.say("a", quotas={"cpu": "1", "-bad": "1"}, left_out="left out: A/b")
    (offer,) = pools.offers()
    assert offer.quotas == {"cpu": Fraction(1)}
    assert offer.left_out == "left out: A/b"


def test_a_pool_that_takes_no_more_jobs_says_so(pools: Pools) -> None:
    pools.say("a", draining=True)
    assert pools.offers()[0].draining


def test_a_pool_in_trouble_lives_on_its_last_word_for_a_while(pools: Pools) -> None:
    nats = flavor(poolTimeout=30)
    pools.say("a", quotas={"cpu": "4"}, labels=("x=y",))
    for _ in range(3):
        pools.say("a", 9, quotas={}, labels=("x=z",), draining=True, trouble="no valid token")
    (offer,) = pools.offers(nats)
    assert (offer.lost, offer.quotas, offer.draining) == ("", {"cpu": 4}, True)
    pools.say("a", 3, trouble="no valid token")
    (offer,) = pools.offers(nats)
    assert offer.lost == "its batch system cannot be asked for 30 s (poolTimeout): no valid token"
    pools.say("a", quotas={"cpu": "2"})
    (offer,) = pools.offers(nats)
    assert (offer.lost, offer.quotas) == ("", {"cpu": 2})


def test_a_pool_that_was_in_trouble_from_the_start(pools: Pools) -> None:
    nats = flavor(poolTimeout=30)
    pools.say("a", quotas={}, trouble="no valid token")
    assert pools.offers(nats)[0].lost == "its batch system cannot be asked: no valid token"
    pools.say("a", 100, quotas={"cpu": "4"})
    (offer,) = pools.offers(nats)
    assert (offer.lost, offer.quotas) == ("", {"cpu": 4})


# --- wobbling -------------------------------------------------------------------------------------


def test_rises_and_falls_count_as_their_flavor_says(pools: Pools) -> None:
    pools.say("a", quotas={"cpu": "4"})
    pools.say("a", 20, quotas={"cpu": "8"})
    assert pools.quotas(riseAfter=10) == {"cpu": 4}
    assert pools.quotas(riseAfter=0) == {"cpu": 8}
    assert pools.quotas(10, riseAfter=10) == {"cpu": 8}
    pools.say("a", quotas={"cpu": "2"})
    assert pools.quotas() == {"cpu": 2}
    assert pools.quotas(fallAfter=5) == {"cpu": 8}
    assert pools.quotas(5, fallAfter=5) == {"cpu": 2}


def test_a_resource_that_a_known_pool_has_of_a_sudden_is_a_rise(pools: Pools) -> None:
    pools.say("a", quotas={"cpu": "4"})
    pools.say("a", 20, quotas={"cpu": "4", "x/gpu": "2"})
    assert pools.quotas(riseAfter=10) == {"cpu": 4, "x/gpu": 0}
    assert pools.quotas(10, riseAfter=10) == {"cpu": 4, "x/gpu": 2}


def test_a_resource_that_is_not_published_any_more_is_not_offered(pools: Pools) -> None:
    pools.say("a", quotas={"cpu": "4", "x/gpu": "2"})
    pools.say("a", 20, quotas={"cpu": "4"})
    assert pools.quotas() == {"cpu": 4}


# --- the tracker ----------------------------------------------------------------------------------


def test_the_pause_between_publications_is_kept(pools: Pools) -> None:
    pools.say("a")
    assert pools.tracker.snapshot()[SOURCE, "a"].pause_s == 0
    pools.say("a", 12)
    record = pools.tracker.snapshot()[SOURCE, "a"]
    assert (record.pause_s, record.heard_s, record.heard_at) == (12, START + 12, DAY + START + 12)


def test_what_a_pool_has_said_last_is_known(pools: Pools) -> None:
    assert pools.tracker.latest(SOURCE, "a") is None
    pools.say("a", quotas={"cpu": "1"})
    assert pools.tracker.latest(SOURCE, "a") == Resources("a", {"cpu": "1"})


def test_a_flood_of_names_is_cut_off_at_one_source_only(
    pools: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_POOLS >= 1000
    monkeypatch.setattr(offers_module, "MAX_POOLS", 3)
    assert [pools.say(f"p{i}") for i in range(5)] == [True, True, True, False, False]
    assert pools.say("p1")  # one that is known goes on
    assert pools.say("p9", source=OTHER)
    assert sorted(pool for _, pool in pools.tracker.snapshot()) == ["p0", "p1", "p2", "p9"]


def test_a_snapshot_does_not_change(pools: Pools) -> None:
    pools.say("a")
    before = pools.tracker.snapshot()
    copied = dict(before)
    pools.say("a", 5, quotas={"cpu": "9"})
    pools.say("b")
    pools.tracker.extend_timeouts(10)
    assert before == copied


def test_remembered_pools_count_as_they_were_and_what_they_say_counts_at_once(pools: Pools) -> None:
    record = restored_record(Resources("a", {"cpu": "2"}), START, DAY)
    assert record.restored
    pools.tracker.restore({(SOURCE, "a"): record})
    assert pools.quotas(riseAfter=60) == {"cpu": 2}
    pools.say("a", 1, quotas={"cpu": "64", "x/gpu": "4"})
    assert pools.quotas(riseAfter=60) == {"cpu": 64, "x/gpu": 4}
    record = pools.tracker.snapshot()[SOURCE, "a"]
    assert (record.restored, record.pause_s) == (False, 0)


def test_what_was_heard_meanwhile_is_not_overwritten_by_a_memory(pools: Pools) -> None:
    pools.say("a", quotas={"cpu": "64"})
    old = restored_record(Resources("a", {"cpu": "2"}), START - 5, DAY)
    pools.tracker.restore({(SOURCE, "a"): old, (SOURCE, "b"): old})
    assert [one.quotas for one in pools.offers()] == [{"cpu": 64}, {"cpu": 2}]


def test_time_in_which_nobody_listened_is_forgiven(pools: Pools) -> None:
    pools.say("a")
    nats = flavor(poolTimeout=30)
    assert pools.offers(nats, after_s=100)[0].lost
    pools.tracker.extend_timeouts(80)
    assert pools.offers(nats)[0].lost == ""
    assert pools.offers(nats, after_s=10)[0].lost


def test_what_was_heard_elsewhere_or_long_ago_is_forgotten(pools: Pools) -> None:
    pools.say("old")
    pools.say("young", FORGET_S / 2)
    pools.say("elsewhere", source=OTHER)
    pools.tracker.prune([SOURCE], START + FORGET_S - 1)
    assert [pool for _, pool in pools.tracker.snapshot()] == ["old", "young"]
    pools.tracker.prune([SOURCE], START + FORGET_S)
    assert [pool for _, pool in pools.tracker.snapshot()] == ["young"]
    pools.tracker.prune([], START)
    assert pools.tracker.snapshot() == {}


def test_a_pool_is_not_forgotten_before_its_jobs_can_have_been_given_back() -> None:
    assert FORGET_S > 2 * MAX_SECONDS  # the longest poolTimeout and the longest returnAfter


SAID = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.integers(1, 20),
        st.dictionaries(st.sampled_from(["cpu", "x/gpu"]), st.integers(0, 5).map(str)),
    ),
    min_size=1,
    max_size=12,
)


@given(said=SAID)
def test_every_pool_stays_within_what_it_has_published(said: Any) -> None:
    pools, published = Pools(), dict[tuple[str, str], set[Fraction]]()
    for pool, after_s, quotas in said:
        pools.say(pool, after_s, quotas=quotas)
        for name, text in quotas.items():
            published.setdefault((pool, name), {Fraction(0)}).add(Fraction(text))
    last = {pool: quotas for pool, _, quotas in said}
    for offer in pools.offers():
        assert offer.quotas.keys() == last[offer.pool].keys()
        for name, amount in offer.quotas.items():
            assert amount in published[offer.pool, name]
    for offer in pools.offers(flavor(poolTimeout=1000), after_s=500):  # all has held by now
        assert offer.quotas == {name: Fraction(t) for name, t in last[offer.pool].items()}
