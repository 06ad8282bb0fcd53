"""No pool pushes out of a queue what another one offers, whatever it offers itself."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kueue_nats.plan.objects import NEW, cluster_queue
from kueue_nats.plan.planner import MAX_FLAVORS, MAX_RESOURCES, UNLIMITED
from tests.unit.kueue_nats.masters import UID, heard, master, offer, planned

pytestmark = pytest.mark.security

ROOM = MAX_RESOURCES - len(UNLIMITED)
GPU = "nvidia.com/gpu"
EARLY, LATE = "0.example", "zzz.example"

Names = st.sets(st.integers(0, 80).map("x.example/{:02}".format), max_size=64)


@pytest.mark.parametrize("domain", [EARLY, LATE])
@pytest.mark.parametrize("others", [1, 3, 20, ROOM - 1, MAX_FLAVORS - 1])
@pytest.mark.parametrize("position", ["first", "last"])
def test_the_gpus_of_a_pool_stay_whatever_others_offer(
    domain: str, others: int, position: str
) -> None:
    hostile = [
        offer(f"b{number}", {f"{domain}/r{number:02}-{name:02}": 1 for name in range(64)})
        for number in range(others)
    ]
    honest = offer("a", {"cpu": 4, GPU: 8})
    offers = [honest, *hostile] if position == "first" else [*hostile, honest]
    if position == "last" and others >= ROOM:
        return  # 60 places are for 60 pools that each have something of their own
    made = planned(master(heard()), *offers)
    pool = next(pool for pool in made.pools if pool.name == "a")
    assert pool.effective[GPU] == 8
    assert pool.message == ""
    assert len(made.queues[0].resources) == MAX_RESOURCES


@settings(deadline=None, max_examples=50)
@given(own=Names, others=st.lists(Names, max_size=8))
def test_every_pool_has_its_share_of_the_room(own: set[str], others: list[set[str]]) -> None:
    offers = [offer("own", dict.fromkeys(own, 1))]
    offers += [offer(f"p{i}", dict.fromkeys(names, 1)) for i, names in enumerate(others)]
    made = planned(master(heard()), *offers)
    share = ROOM // len(offers)
    for pool in made.pools:
        offered = next(one.quotas for one in offers if one.pool == pool.name)
        assert len(pool.effective) >= min(share, len(offered))


def test_what_the_admin_names_is_covered_before_all_that_pools_offer() -> None:
    hostile = offer("b", {f"{EARLY}/r{name:02}": 1 for name in range(64)})
    wanted = master(heard(nominalQuota={"z.example/licence": 5}))
    made = planned(wanted, hostile, offer("z", {"z.example/licence": 9}))
    assert "z.example/licence" in made.queues[0].resources


def test_a_queue_of_pools_that_all_invent_names_fits_into_an_object() -> None:
    """The API server takes 1.5 MiB, Kueue's status of the queue included."""
    offers = [
        offer(f"{'p' * 60}{i:02}", {f"{i:02}{name:02}{'x' * 57}/y": 2**53 for name in range(64)})
        for i in range(MAX_FLAVORS)
    ]
    (queue,) = planned(master(heard()), *offers).queues
    body = cluster_queue(queue, {"uid": UID}, NEW)
    assert len(queue.flavors) == MAX_FLAVORS
    assert len(str(body)) < 800_000
