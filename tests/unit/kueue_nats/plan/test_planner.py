"""From a MasterQueue and what its pools offer to flavors and queues that Kueue takes."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kueue_nats.plan.objects import NEW, cluster_queue, resource_flavor
from kueue_nats.plan.planner import (
    ACTIVE,
    DRAINING,
    LARGEST,
    LOST,
    MAX_FLAVORS,
    MAX_RESOURCES,
    MAX_TAINTS,
    UNLIMITED,
    UNUSED,
    Plan,
    plan,
)
from kueue_nats.pools.tracker import PoolOffer
from kueue_nats.spec.errors import SpecError
from kueue_nats.spec.masterqueue import MasterQueue
from templates.common.names import is_resource, is_subdomain, pool_of_value
from templates.common.quantity import parse
from tests.unit.kueue_nats import masters
from tests.unit.kueue_nats.masters import amounts, heard, lends, local, master, offer, planned

OWNER = {"uid": masters.UID}
USUAL = dict(UNLIMITED)


def pools(made: Plan) -> dict[str, tuple[str, str]]:
    return {pool.name: (pool.state, pool.message) for pool in made.pools}


# --- the manifest ---------------------------------------------------------------------------------


def test_the_manifest_that_users_have_covers_cpu_and_memory() -> None:
    offers = {"interlink": [offer("cnaf", {"cpu": 64, "memory": 2**38, "pods": 500})]}
    made = plan(masters.manifest(), offers, ["local-cpu"])
    mine, group1 = made.queues
    assert (mine.name, group1.name) == ("masterqueue", "group1")
    assert mine.resources == group1.resources == ("cpu", "memory", "pods", "ephemeral-storage")
    remote = "masterqueue.interlink.cnaf"
    assert list(mine.flavors) == list(group1.flavors) == [remote, "local-cpu"]
    assert amounts(made, "masterqueue", remote) == {
        **USUAL,
        "cpu": 64,
        "memory": 2**38,
        "pods": 100,
    }
    assert amounts(made, "masterqueue", "local-cpu") == {**USUAL, "pods": 100}
    for flavor in (remote, "local-cpu"):
        borrowed = {"cpu": 0, "memory": 0, "pods": (0, 30), "ephemeral-storage": 0}
        assert amounts(made, "group1", flavor) == borrowed
    assert [one.name for one in made.flavors] == [remote]
    assert made.flavors[0].spec == {
        "nodeLabels": {"kubernetes.io/hostname": "interlink"},
        "nodeTaints": [
            {
                "key": "virtual-node.interlink/no-schedule",
                "value": "true",
                "effect": "NoSchedule",
            }
        ],
        "tolerations": [
            {"key": "pool.vk.io", "operator": "Equal", "value": "cnaf", "effect": "NoSchedule"}
        ],
    }


def test_without_a_pool_or_a_local_flavor_the_queues_are_there_and_empty() -> None:
    made = plan(masters.manifest(), {"interlink": []}, [])
    assert [(queue.name, queue.resources, queue.flavors) for queue in made.queues] == [
        ("masterqueue", (), {}),
        ("group1", (), {}),
    ]
    assert made.flavors == ()
    assert pools(made)["local-cpu"][0] == UNUSED
    assert "no ResourceFlavor local-cpu" in pools(made)["local-cpu"][1]


# --- quota ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offered", "nominal", "quota"),
    [
        ({"cpu": 64}, {}, {"cpu": 64}),
        ({"cpu": 64}, {"cpu": "10"}, {"cpu": 10}),
        ({"cpu": 64}, {"cpu": "100"}, {"cpu": 64}),
        ({"cpu": 64}, {"cpu": "0"}, {"cpu": 0}),
        ({}, {"cpu": "10"}, {"cpu": 10}),  # nobody has said of it, but the admin limits it
        ({}, {}, {}),
        ({"cpu": 10**30}, {}, {}),
        ({}, {"cpu": "1e30"}, {}),
        ({"x/gpu": 4}, {}, {"x/gpu": 4}),
        ({"x/gpu": 4}, {"x/gpu": "1"}, {"x/gpu": 1}),
        ({}, {"x/gpu": "8"}, {"x/gpu": 0}),  # what no pool offers there is not
        ({"x/gpu": 10**30}, {}, {"x/gpu": 2**55}),
    ],
)
def test_a_pools_quota_is_what_it_offers_capped_by_what_the_admin_says(
    offered: dict[str, Any], nominal: dict[str, str], quota: dict[str, Any]
) -> None:
    made = planned(master(heard(nominalQuota=nominal)), offer("p", offered))
    assert amounts(made, "mq", "mq.g.p") == {**USUAL, **quota}


def test_what_one_pool_has_no_other_has() -> None:
    wanted = master(heard(), local(nominalQuota={"cpu": "8"}))
    made = planned(wanted, offer("a", {"x/gpu": 4}), offer("b", {"cpu": 2, "y/fpga": 1}))
    assert amounts(made, "mq", "mq.g.a") == {**USUAL, "x/gpu": 4, "y/fpga": 0}
    assert amounts(made, "mq", "mq.g.b") == {**USUAL, "cpu": 2, "x/gpu": 0, "y/fpga": 1}
    assert amounts(made, "mq", "local") == {**USUAL, "cpu": 8, "x/gpu": 0, "y/fpga": 0}


@pytest.mark.parametrize(
    ("limit", "borrowed"),
    [
        ({}, {"cpu": 0, "x/gpu": 0}),
        ({"cpu": 2}, {"cpu": (0, 2), "x/gpu": 0}),
        ({"cpu": 100}, {"cpu": (0, 4), "x/gpu": 0}),  # never above what there is
        ({"x/gpu": 1}, {"cpu": 0, "x/gpu": (0, 0)}),
        ({"cpu": "1e30"}, {"cpu": (0, 4), "x/gpu": 0}),
    ],
)
def test_a_borrower_has_no_quota_and_a_limit_for_each_pool(
    limit: dict[str, Any], borrowed: dict[str, Any]
) -> None:
    wanted = master(heard(nominalQuota={"x/gpu": 9}, canLendTo=[lends("other", **limit)]))
    found = amounts(planned(wanted, offer("p", {"cpu": 4})), "other", "mq.g.p")
    assert {name: found[name] for name in borrowed} == borrowed


def test_a_borrower_has_only_flavors_that_are_lent_to_it_in_the_order_of_the_spec() -> None:
    wanted = master(
        local("first", canLendTo=[lends("b")]),
        heard(canLendTo=[lends("a"), lends("b")]),
        local("last", canLendTo=[lends("c")]),
    )
    made = planned(wanted, offer("y"), offer("x"), there=("first",))
    listed = {queue.name: list(queue.flavors) for queue in made.queues}
    assert listed == {
        "mq": ["first", "mq.g.y", "mq.g.x"],
        "b": ["first", "mq.g.y", "mq.g.x"],
        "a": ["mq.g.y", "mq.g.x"],
        "c": [],
    }
    assert made.queues[-1].resources == ()


def test_the_master_queue_itself_borrows_as_it_says() -> None:
    made = planned(master(heard(borrowingLimit={"cpu": 5, "pods": "1e30"})), offer("p", {"cpu": 4}))
    assert amounts(made, "mq", "mq.g.p") == {
        **USUAL,
        "cpu": (4, 5),
        "pods": (UNLIMITED["pods"], UNLIMITED["pods"]),
    }


# --- pools that are not used, or not as one might think -------------------------------------------


@pytest.mark.parametrize(
    ("offered", "drain", "why"),
    [
        (offer("p", {"cpu": 4}), ["p"], "drained by its MasterQueue"),
        (offer("p", {"cpu": 4}, draining=True), [], "the site takes no more jobs"),
    ],
)
def test_a_pool_under_drain_keeps_its_flavor_and_has_nothing(
    offered: PoolOffer, drain: list[str], why: str
) -> None:
    flavor = heard(
        nominalQuota={"memory": "1Gi"}, borrowingLimit={"cpu": 3}, canLendTo=[lends("b", cpu=1)]
    )
    made = planned(master(flavor, drain=drain), offered)
    for queue in ("mq", "b"):
        assert set(amounts(made, queue, "mq.g.p").values()) == {(0, 0)}
    assert pools(made) == {"p": (DRAINING, why)}
    assert made.pools[0].effective == {"cpu": 0}


def test_a_local_flavor_can_be_drained_too() -> None:
    made = planned(master(local(nominalQuota={"pods": 5}), drain=["local"]))
    assert set(amounts(made, "mq", "local").values()) == {(0, 0)}
    assert pools(made)["local"][0] == DRAINING


def test_a_lost_pool_has_no_flavor() -> None:
    made = planned(master(heard()), offer("a", {"cpu": 1}), offer("b", lost="silent"))
    assert list(made.queues[0].flavors) == ["mq.g.a"]
    assert pools(made) == {"a": (ACTIVE, ""), "b": (LOST, "silent")}


@pytest.mark.parametrize(
    ("taints", "words"),
    [
        (["nonsense"], "nonsense is not key=value:effect"),
        (["k=v:Never"], "k=v:Never is not"),
        (["k=v"], "k=v is not"),
        (["=v:NoSchedule"], "=v:NoSchedule is not"),
        (["k=a/b:NoSchedule"], "is not"),
        ([f"k={'v' * 64}:NoSchedule"], "is not"),
        ([f"k{i}=v:NoSchedule" for i in range(8)], "9 of them, and a flavor can have 8"),
        (["k=a:NoSchedule", "k=b:NoSchedule"], "k has two values for NoSchedule"),
        (["virtual-node.interlink/no-schedule=false:NoSchedule"], "has two values"),
    ],
)
def test_a_pool_whose_taints_cannot_be_kept_is_not_used(taints: list[str], words: str) -> None:
    made = planned(master(heard()), offer("a", {"cpu": 1}, taints=tuple(taints)))
    state, why = pools(made)["a"]
    assert state == UNUSED
    assert why.startswith("taints: ")
    assert words in why
    assert made.flavors == ()


def test_taints_of_a_pool_are_those_of_its_flavor() -> None:
    said = ("k=v:NoSchedule", "k=v:NoExecute", "a.b/c:PreferNoSchedule", "k=v:NoSchedule")
    said += ("virtual-node.interlink/no-schedule=true:NoSchedule",)
    made = planned(master(heard()), offer("a", taints=said))
    assert made.flavors[0].spec["nodeTaints"][1:] == [
        {"key": "k", "value": "v", "effect": "NoSchedule"},
        {"key": "k", "value": "v", "effect": "NoExecute"},
        {"key": "a.b/c", "value": "", "effect": "PreferNoSchedule"},
    ]


def test_labels_that_kubernetes_cannot_hold_are_left_out() -> None:
    said = ("a=b", "c=", "d", "e=f=g", "-x=y", "a.b/c=d", f"l={'v' * 64}", "s=a/b", "")
    made = planned(master(heard()), offer("a", labels=said))
    assert made.flavors[0].labels == {"a": "b", "c": "", "d": "", "a.b/c": "d"}


def test_without_a_virtual_node_any_interlink_node_will_do() -> None:
    spec = planned(master(heard()), offer("a")).flavors[0].spec
    assert spec["nodeLabels"] == {"virtual-node.interlink/type": "virtual-kubelet"}


def test_what_was_left_out_of_an_offer_is_said() -> None:
    made = planned(master(heard()), offer("a", {"cpu": 1}, left_out="left out: -bad"))
    assert pools(made) == {"a": (ACTIVE, "left out: -bad")}


def test_a_name_that_no_toleration_can_hold_is_said_in_words() -> None:
    made = planned(master(heard()), offer("_" + "x" * 61 + "_"))
    ((state, why),) = pools(made).values()
    assert state == UNUSED
    assert "too long for a toleration" in why


def test_more_pools_than_a_queue_holds_are_left_out_from_the_end() -> None:
    wanted = master(heard(), local())
    made = planned(wanted, *(offer(f"p{i:02}") for i in range(70)))
    assert len(made.queues[0].flavors) == len(made.flavors) == MAX_FLAVORS
    unused = [pool for pool in made.pools if pool.state == UNUSED]
    assert [pool.name for pool in unused] == [*(f"p{i}" for i in range(64, 70)), "local"]
    assert {pool.message for pool in unused} == {
        "a ClusterQueue holds 64 flavors: more need another MasterQueue"
    }


def test_more_resources_than_a_queue_covers_are_left_out_in_words() -> None:
    published = {f"x/r{i:02}": 1 for i in range(64)}
    made = planned(
        master(heard(nominalQuota={"z/last": 5})), offer("p", {**published, "z/last": 9})
    )
    (queue,) = made.queues
    assert len(queue.resources) == MAX_RESOURCES
    assert "z/last" in queue.resources  # what the admin names comes first
    why = "left out: x/r59, x/r60, x/r61, x/r62, x/r63 (a ClusterQueue covers 64 resources)"
    assert pools(made) == {"p": (ACTIVE, why)}
    assert set(made.pools[0].effective) == {"z/last", *(f"x/r{i:02}" for i in range(59))}


def test_a_pool_in_two_flavors_belongs_to_the_first() -> None:
    wanted = master(heard("one", {"pools": ["a"]}), heard("two"))
    offers = {"one": [offer("a", {"cpu": 1})], "two": [offer("a", {"cpu": 1}), offer("b")]}
    made = plan(wanted, offers, ())
    assert [(pool.group, pool.name) for pool in made.pools] == [("one", "a"), ("two", "b")]


def test_equal_names_at_two_servers_are_two_pools() -> None:
    wanted = master(heard("one"), heard("two", {"natsConnector": "nats://b"}))
    offers = {"one": [offer("a")], "two": [offer("a")]}
    assert list(plan(wanted, offers, ()).queues[0].flavors) == ["mq.one.a", "mq.two.a"]


def test_a_local_flavor_that_is_called_like_a_pools_is_not_named_twice() -> None:
    made = planned(master(heard(), local("mq.g.a")), offer("a"), there=("mq.g.a",))
    assert list(made.queues[0].flavors) == ["mq.g.a"]
    assert pools(made)["mq.g.a"] == (UNUSED, "another pool's flavor is called mq.g.a already")


# --- any mix --------------------------------------------------------------------------------------

RESOURCES = st.sampled_from(
    ["cpu", "memory", "pods", "ephemeral-storage", "nvidia.com/gpu", "hugepages-2Mi", "licence"]
    + [f"x.y/r{i}" for i in range(5)]
)
HUGE = ["0", "1", "100m", "1n", "1.5Gi", "9223372036854775807", "1e30", "16Ei", "0.0001"]
QUANTITIES = st.sampled_from(HUGE) | st.integers(0, 10**6).map(str)
LIMITS = st.dictionaries(RESOURCES, QUANTITIES, max_size=4)
POOLS = st.from_regex(r"[A-Za-z0-9_-]{1,6}|[A-Za-z0-9_-]{55,63}", fullmatch=True)
QUEUES = st.sampled_from(["a", "b", "c.d", "mq2"])
TEXTS = st.text(max_size=10) | st.sampled_from(
    [
        "k=v:NoSchedule",
        "k=w:NoSchedule",
        "k:NoExecute",
        "a=b",
        "a.b/c=d",
        "k=v:x",
        "=",
        ":NoSchedule",
    ]
)
LENDING = st.lists(
    st.builds(lambda queue, limit: lends(queue, **limit), QUEUES, LIMITS),
    unique_by=lambda entry: entry["queue"],
    max_size=3,
)
LIMITED = {"nominalQuota": LIMITS, "borrowingLimit": LIMITS, "canLendTo": LENDING}


@st.composite
def offered(draw: st.DrawFn) -> list[PoolOffer]:
    names = draw(st.lists(POOLS, unique=True, max_size=6))
    found = []
    for name in names:
        quotas = draw(st.dictionaries(RESOURCES, QUANTITIES.map(parse), max_size=5))
        found.append(
            PoolOffer(
                pool=name,
                quotas=quotas,
                labels=tuple(draw(st.lists(TEXTS, max_size=3))),
                taints=tuple(draw(st.lists(TEXTS, max_size=2) | st.just([]))),
                draining=draw(st.integers(0, 4)) == 0,
                left_out="left out: -bad" * draw(st.integers(0, 1)),
                lost="silent" * (draw(st.integers(0, 4)) == 0),
            )
        )
    if draw(st.integers(0, 9)) == 0:  # more than there is room for
        found += [PoolOffer(f"more{i}", {f"z/r{i}": Fraction(1)}) for i in range(70)]
    return found


@st.composite
def cases(draw: st.DrawFn) -> tuple[MasterQueue, dict[str, list[PoolOffer]], list[str]]:
    names = draw(st.lists(st.sampled_from(["g1", "g2", "l1", "l2"]), unique=True, min_size=1))
    flavors, offers = [], {}
    for name in names:
        limits = draw(st.fixed_dictionaries({}, optional=LIMITED))
        if name[0] == "l":
            flavors.append(local(name, **limits))
            continue
        server = {"natsConnector": draw(st.sampled_from(["", "nats://b"]))}
        flavors.append(heard(name, server, **limits))
        offers[name] = draw(offered())
    every = [one.pool for listed in offers.values() for one in listed] or ["x"]
    drain = draw(st.lists(st.sampled_from([*every, "l1"]), max_size=2))
    name = draw(st.sampled_from(["mq", "team.a", "x" * 253]))
    there = draw(st.lists(st.sampled_from(["l1", "l2", "unasked"]), unique=True))
    return master(*flavors, name=name, drain=drain), offers, there


Case = tuple[MasterQueue, dict[str, list[PoolOffer]], list[str]]
SOME = settings(max_examples=30, suppress_health_check=list(HealthCheck))
MANY = settings(SOME, max_examples=5_000)


@SOME
@given(case=cases())
def test_any_plan_can_be_carried_out(case: Case) -> None:
    assert_all_holds(*case)


@pytest.mark.slow
@MANY
@given(case=cases())
def test_any_plan_can_be_carried_out_at_length(case: Case) -> None:
    assert_all_holds(*case)


def assert_all_holds(
    wanted: MasterQueue, offers: dict[str, list[PoolOffer]], there: list[str]
) -> None:
    made = plan(wanted, offers, there)
    assert_kueue_takes(made, set(there))
    assert_nothing_is_missing(made, wanted, offers)
    assert_quotas_are_right(made, wanted, offers)


def assert_kueue_takes(made: Plan, there: set[str]) -> None:
    assert len({flavor.name for flavor in made.flavors}) == len(made.flavors)
    assert len({queue.name for queue in made.queues}) == len(made.queues)
    for flavor in made.flavors:
        assert_flavor_is_valid(resource_flavor(flavor, OWNER, NEW), flavor.pool)
    known = {flavor.name for flavor in made.flavors} | there
    for queue in made.queues:
        body = cluster_queue(queue, OWNER, NEW)
        assert is_subdomain(body["metadata"]["name"])
        assert len(body["spec"]["resourceGroups"]) == (1 if queue.flavors else 0)
        for group in body["spec"]["resourceGroups"]:
            assert_group_is_valid(group)
            assert {flavor["name"] for flavor in group["flavors"]} <= known


def assert_flavor_is_valid(body: dict[str, Any], pool: str) -> None:
    """As the API server and Kueue's webhook want it."""
    assert is_subdomain(body["metadata"]["name"])
    for labels in (body["metadata"]["labels"], body["spec"]["nodeLabels"]):
        for key, value in labels.items():
            assert is_resource(key)
            assert re.fullmatch(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", value)
    taints = body["spec"]["nodeTaints"]
    assert 1 <= len(taints) <= MAX_TAINTS
    assert len({(taint["key"], taint["effect"]) for taint in taints}) == len(taints)
    for taint in taints:
        assert is_resource(taint["key"])
        assert taint["effect"] in ("NoSchedule", "PreferNoSchedule", "NoExecute")
    (toleration,) = body["spec"]["tolerations"]
    assert pool_of_value(toleration["value"]) == pool
    assert len(toleration["value"]) <= 63


def assert_group_is_valid(group: dict[str, Any]) -> None:
    covered = group["coveredResources"]
    assert 1 <= len(covered) <= MAX_RESOURCES
    assert 1 <= len(group["flavors"]) <= MAX_FLAVORS
    assert len(set(covered)) == len(covered)
    assert len({flavor["name"] for flavor in group["flavors"]}) == len(group["flavors"])
    assert all(map(is_resource, covered))
    sums = dict.fromkeys(covered, Fraction(0))
    for flavor in group["flavors"]:
        assert [resource["name"] for resource in flavor["resources"]] == covered
        for resource in flavor["resources"]:
            # Kueue keeps thousandths of CPUs, and of all else whole ones, in 64 bits.
            factor = 1000 if resource["name"] == "cpu" else 1
            for key in ("nominalQuota", "borrowingLimit"):
                amount = parse(resource.get(key, "0"))
                assert 0 <= amount <= LARGEST
                sums[resource["name"]] += amount * factor
    assert max(sums.values()) < 2**63


def assert_nothing_is_missing(
    made: Plan, wanted: MasterQueue, offers: dict[str, list[PoolOffer]]
) -> None:
    """Without a word."""
    mine = made.queues[0]
    named = [pool.flavor for pool in made.pools if pool.flavor]
    assert list(mine.flavors) == named  # in the order of the spec, and of the offers
    for pool in made.pools:
        assert (pool.state in (ACTIVE, DRAINING)) is bool(pool.flavor)
        assert pool.flavor or pool.message
        assert pool.effective.keys() <= set(mine.resources)
    # A pool that is not shown here is shown in another flavor that hears the same source.
    heard_of = {(g.name, o.pool) for g in wanted.groups if g.nats for o in offers[g.name]}
    shown = {(pool.group, pool.name) for pool in made.pools}
    for group, name in heard_of - shown:
        sources = {g.name: g.nats.source for g in wanted.groups if g.nats}
        assert any(p == name and sources[g] == sources[group] for g, p in shown if g in sources)


def assert_quotas_are_right(
    made: Plan, wanted: MasterQueue, offers: dict[str, list[PoolOffer]]
) -> None:
    groups = {group.name: group for group in wanted.groups}
    said = {(name, one.pool): one.quotas for name, listed in offers.items() for one in listed}
    for pool in filter(lambda one: one.flavor, made.pools):
        group = groups[pool.group]
        quotas = dict(zip(made.queues[0].resources, made.queues[0].flavors[pool.flavor]))
        for name, quota in quotas.items():
            most = UNLIMITED.get(name, LARGEST)
            cap = min(parse(group.nominal[name]) if name in group.nominal else most, most)
            usual = most if name in UNLIMITED or not group.nats else Fraction(0)
            if not group.nats and name not in UNLIMITED and name not in group.nominal:
                usual = Fraction(0)
            expected = min(said.get((pool.group, pool.name), {}).get(name, usual), cap)
            assert quota.nominal == (0 if pool.state == DRAINING else expected)
        for queue in made.queues:
            for name, quota in zip(queue.resources, queue.flavors.get(pool.flavor, ())):
                if pool.state == DRAINING:
                    assert quota == (0, 0)
                elif queue.name != wanted.name:
                    limit = next(x.limit for x in group.lends if x.queue == queue.name).get(name)
                    most = quotas[name].nominal
                    assert quota == (0, None if limit is None else min(parse(limit), most))


@given(name=st.text(max_size=70))
def test_a_limit_on_what_is_no_resource_never_reaches_a_plan(name: str) -> None:
    try:
        made = planned(master(local(nominalQuota={name: "1"})))
    except SpecError as error:
        assert "nominalQuota" in error.field
        assert not is_resource(name)
    else:
        assert name in made.queues[0].resources
