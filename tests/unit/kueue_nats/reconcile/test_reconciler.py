"""Rounds, one after the other: what is written, in which order, and that it comes to an end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kueue_nats.plan import planner
from kueue_nats.plan.actions import named_flavors
from kueue_nats.plan.objects import FLAVORS, MANAGED_BY, QUEUES, owner_reference
from kueue_nats.pools.tracker import PoolTracker
from kueue_nats.reconcile.reconciler import Reconciler, RoundInput, RoundResult
from kueue_nats.reconcile.restore import Clock
from kueue_nats.spec.errors import Conflicting, NotAllowed, Rejected, Unreachable
from kueue_nats.spec.masterqueue import NatsSource
from kueue_nats.spec.settings import OwnNats
from templates.protocol.publications import Resources
from tests.unit.kueue_nats.cluster_in_memory import ClusterInMemory
from tests.unit.kueue_nats.masters import heard, lends, local, raw

SERVER = "nats://user:pw@nats.example.org:4222"
DAY = 1_700_000_000.0


class Life:
    """An operator without its loop: pools speak, the clock goes on, rounds are made."""

    def __init__(self, cluster: ClusterInMemory | None = None, *, now_s: float = 1000.0) -> None:
        self.cluster = cluster or ClusterInMemory()
        self.now_s = now_s
        self.troubles: dict[NatsSource, str] = {}
        self.restart()

    def restart(self, *, strict: bool = False) -> None:
        """As a new process: what it knows is in the cluster."""
        self.tracker = PoolTracker()
        own = OwnNats()
        self.reconciler = Reconciler(self.cluster, own, "ours", strict=strict)  # type: ignore[arg-type]
        self.outcome: RoundResult | None = None

    def say(self, pool: str, **quotas: object) -> None:
        self.hear(Resources(pool, {name: str(amount) for name, amount in quotas.items()}))

    def hear(self, said: Resources) -> None:
        source = NatsSource(SERVER, None, "interlink.resources")
        self.tracker.record(source, said, self.now_s, DAY + self.now_s)

    def round(self) -> RoundResult:
        clock = Clock(self.now_s, DAY + self.now_s)
        outcome = self.reconciler.round(RoundInput(self.tracker.snapshot(), self.troubles, clock))
        self.tracker.restore(outcome.restored)
        self.tracker.prune(outcome.wanted_sources, self.now_s)
        self.troubles = dict.fromkeys(outcome.sources, "")
        self.outcome = outcome
        return outcome

    def settle(self, after_s: float = 0) -> int:
        """Rounds until nothing is left to do; returns how many were needed."""
        self.now_s += after_s
        for number in range(1, 20):
            if not self.round().again:
                return number
        raise AssertionError(f"it does not come to rest: {self.cluster.log[-20:]}")

    def status(self, name: str = "mq") -> dict[str, Any]:
        status: dict[str, Any] = self.cluster.owners[name]["status"]
        return status

    def condition(self, kind: str = "Ready", name: str = "mq") -> tuple[str, str, str]:
        found = next(c for c in self.status(name)["conditions"] if c["type"] == kind)
        return found["status"], found["reason"], found["message"]

    def flavors(self, queue: str = "mq") -> set[str]:
        return named_flavors([self.cluster.objects[QUEUES][queue]])


def remote(name: str = "g", **more: Any) -> dict[str, Any]:
    nats = {"natsConnector": SERVER, "poolTimeout": 30, "riseAfter": 0, **more.pop("nats", {})}
    return heard(name, nats, **more)


@pytest.fixture
def life() -> Life:
    return Life()


# --- the order of writes --------------------------------------------------------------------------


def test_a_pool_comes_with_its_flavor_first(life: Life) -> None:
    life.cluster.set_master(raw(remote(canLendTo=[lends("b")])))
    life.settle()
    life.cluster.log.clear()
    life.say("p", cpu=4)
    assert life.round().again
    assert life.cluster.log == [f"apply {FLAVORS}/mq.g.p"]
    assert life.round().again  # seen for the first time
    assert life.cluster.log[1:] == []
    assert life.round().again
    assert life.cluster.log[1:] == [f"apply {QUEUES}/mq", f"apply {QUEUES}/b"]
    assert not life.round().again
    assert life.cluster.log[3] == "status mq"
    assert life.flavors() == life.flavors("b") == {"mq.g.p"}
    assert set(life.cluster.objects[FLAVORS]) == {"mq.g.p"}


def test_a_flavor_of_the_admins_is_named_one_round_after_it_was_seen(life: Life) -> None:
    life.cluster.set_master(raw(local()))
    life.settle()
    life.cluster.put(FLAVORS, "local")
    assert life.round().again
    assert life.flavors() == set()
    life.round()
    assert life.flavors() == {"local"}
    assert life.cluster.unsafe == []


def test_an_operator_that_has_just_started_waits_for_new_flavors_only(life: Life) -> None:
    life.cluster.set_master(raw(remote()))
    life.say("p", cpu=4)
    life.settle()
    life.say("q", cpu=4)
    life.round()
    assert life.cluster.log[-1] == f"apply {FLAVORS}/mq.g.q"
    life.restart()
    for pool in "pq":
        life.say(pool, cpu=4)
    life.cluster.log.clear()
    assert life.round().again
    assert life.cluster.log == []
    assert life.flavors() == {"mq.g.p"}
    life.settle()
    assert life.cluster.log[0] == f"apply {QUEUES}/mq"
    assert life.flavors() == {"mq.g.p", "mq.g.q"}


def test_a_flavor_that_was_made_anew_is_named_once_it_has_been_seen(life: Life) -> None:
    wanted = raw(remote(canLendTo=[lends("b")]))
    life.cluster.set_master(wanted)
    life.say("p", cpu=4)
    for _ in range(2):
        life.round()
    made = life.cluster.objects[FLAVORS]
    del made["mq.g.p"]
    life.cluster.put(FLAVORS, "mq.g.p")
    made["mq.g.p"]["metadata"]["ownerReferences"] = [owner_reference(wanted)]
    life.settle()
    assert life.flavors() == life.flavors("b") == {"mq.g.p"}
    assert life.cluster.unsafe == []


def test_a_pool_comes_back_when_kueue_has_let_go_of_its_flavor(life: Life) -> None:
    life.cluster.set_master(raw(remote()))
    life.say("p", cpu=4)
    life.settle()
    life.cluster.deaf = True
    life.settle(after_s=30)
    life.say("p", cpu=4)
    life.settle()
    assert life.flavors() == set()  # the flavor still goes
    life.cluster.deaf = False
    life.settle()
    assert life.flavors() == {"mq.g.p"}
    assert life.cluster.unsafe == []


def test_the_probe_of_a_former_version_is_deleted(life: Life) -> None:
    """It made one flavor more, called <masterqueue>.probe, to find out what Kueue knows."""
    wanted = raw(remote())
    life.cluster.set_master(wanted)
    life.cluster.put(FLAVORS, "mq.probe")
    life.cluster.put(FLAVORS, "other.probe")  # of somebody else's
    probe = life.cluster.objects[FLAVORS]["mq.probe"]["metadata"]
    probe.update(labels=dict(MANAGED_BY), ownerReferences=[owner_reference(wanted)])
    life.say("p", cpu=4)
    life.settle()
    assert set(life.cluster.objects[FLAVORS]) == {"mq.g.p", "other.probe"}
    assert life.flavors() == {"mq.g.p"}
    assert life.condition()[0] == "True"
    assert life.cluster.unsafe == []


def test_a_pool_goes_with_its_flavor_last(life: Life) -> None:
    life.cluster.set_master(raw(remote(canLendTo=[lends("b")])))
    life.say("p", cpu=4)
    life.settle()
    life.cluster.log.clear()
    life.settle(after_s=30)
    writes = [line for line in life.cluster.log if not line.startswith(("status", "event"))]
    assert writes == [f"apply {QUEUES}/mq", f"apply {QUEUES}/b", f"delete {FLAVORS}/mq.g.p"]
    assert life.status()["pools"][0]["state"] == "Lost"


def test_at_rest_nothing_is_written_and_news_once_a_minute(life: Life) -> None:
    life.cluster.set_master(raw(remote()))
    life.say("p", cpu=4, memory="1Gi")
    life.settle()
    before = life.cluster.writes
    for _ in range(300):
        life.now_s += 2
        life.say("p", cpu=4, memory="1024Mi")
        life.round()
    assert life.cluster.writes - before == 10  # in ten minutes
    assert set(life.cluster.log[before:]) == {"status mq"}


def test_a_queue_that_is_no_longer_lent_to_goes(life: Life) -> None:
    life.cluster.set_master(raw(remote(canLendTo=[lends("b"), lends("c")])))
    life.say("p", cpu=4)
    life.settle()
    life.cluster.set_master(raw(remote(canLendTo=[lends("c")])))
    life.settle()
    assert set(life.cluster.objects[QUEUES]) == {"mq", "c"}


# --- what goes wrong ------------------------------------------------------------------------------


def test_one_that_cannot_be_read_does_not_hinder_others(life: Life) -> None:
    wrong = raw(remote(nats={"poolRegExp": "("}), name="wrong")
    life.cluster.set_master({**wrong, "metadata": {**wrong["metadata"], "uid": "other"}})
    life.cluster.set_master(raw(remote()))
    life.say("p", cpu=4)
    life.settle()
    status, reason, message = life.condition(name="wrong")
    assert (status, reason) == ("False", "InvalidSpec")
    assert message.startswith("spec.flavors[0].natsFlavor.poolRegExp: is not a regular expression")
    assert life.flavors() == {"mq.g.p"}


def test_without_kueue_that_is_what_is_said(life: Life) -> None:
    life.cluster.version = ""
    life.cluster.set_master(raw(remote()))
    outcome = life.round()
    assert life.condition()[:2] == ("False", "KueueMissing")
    assert list(outcome.sources)  # pools are heard all the same
    life.cluster.version = "v1beta1"  # it is installed
    life.say("p", cpu=4)
    life.settle()
    assert life.condition()[0] == "True"
    assert life.cluster.objects[QUEUES]["mq"]["apiVersion"] == "kueue.x-k8s.io/v1beta1"


def test_an_upgrade_of_kueue_is_noticed(life: Life) -> None:
    life.cluster.version = "v1beta1"
    life.cluster.set_master(raw(remote()))
    life.say("p", cpu=4)
    life.settle()
    life.cluster.version = ""  # its definitions are replaced
    life.round()
    life.cluster.version = "v1beta2"
    life.settle()
    assert life.cluster.objects[QUEUES]["mq"]["spec"]["cohortName"] == "mq"


@pytest.mark.parametrize("kind", [Rejected, NotAllowed, Conflicting])
def test_what_was_refused_is_told_and_tried_again(life: Life, kind: Any) -> None:
    life.cluster.set_master(raw(remote()))
    life.cluster.failures = [kind(f"ClusterQueue mq{i}", "it may not be") for i in range(2)]
    life.say("p", cpu=4)
    outcome = life.round()
    assert not outcome.again  # not at once: nothing says that it would be better then
    assert life.condition()[:2] == ("False", "Refused")
    assert "ClusterQueue mq0: it may not be" in life.condition()[2]
    life.settle()
    assert life.condition()[0] == "True"


def test_a_cluster_that_cannot_be_reached_ends_the_round(life: Life) -> None:
    life.cluster.set_master(raw(remote()))
    life.cluster.failures = [Unreachable("ClusterQueue mq", "connection refused")]
    with pytest.raises(Unreachable):
        life.round()


def test_a_foreign_queue_and_flavor_are_left_alone(life: Life) -> None:
    life.cluster.put(QUEUES, "b", {"mine": True})
    life.cluster.put(FLAVORS, "mq.g.p", {"mine": True})
    life.cluster.set_master(raw(remote(canLendTo=[lends("b")])))
    life.say("p", cpu=4)
    life.say("q", cpu=4)
    life.settle()
    assert life.cluster.objects[QUEUES]["b"]["spec"] == {"mine": True}
    assert life.cluster.objects[FLAVORS]["mq.g.p"]["spec"] == {"mine": True}
    assert life.flavors() == {"mq.g.q"}
    status, reason, message = life.condition()
    assert (status, reason) == ("False", "Conflict")
    assert "ResourceFlavor mq.g.p, ClusterQueue b: there already, and not ours" in message


def test_a_local_flavor_counts_when_it_is_there(life: Life) -> None:
    life.cluster.set_master(raw(local()))
    life.settle()
    assert life.flavors() == set()
    assert "there is no ResourceFlavor local" in life.condition("PoolsHealthy")[2]
    life.cluster.put(FLAVORS, "local")
    life.settle()
    assert life.flavors() == {"local"}
    life.cluster.objects[FLAVORS]["local"]["metadata"]["deletionTimestamp"] = "now"
    life.settle()  # the queue would stand still without it
    assert life.flavors() == set()
    assert "local" not in life.cluster.objects[FLAVORS]


def test_somebody_who_undoes_our_writes_is_not_fought_without_end(life: Life) -> None:
    life.cluster.set_master(raw(remote()))
    life.say("p", cpu=4)
    life.settle()
    again = []
    for _ in range(5):
        life.cluster.objects[QUEUES]["mq"]["spec"]["resourceGroups"] = []
        again.append(life.round().again)
        assert life.flavors() == {"mq.g.p"}  # it is set right, in each round
    assert again == [True, False, False, False, False]
    assert life.condition()[1:] == (
        "Undone",
        "mq: somebody else changes what is written there each time",
    )
    life.settle()
    assert life.condition()[0] == "True"


# --- NATS -----------------------------------------------------------------------------------------


def test_a_source_that_cannot_be_reached_is_told_and_keeps_its_pools(life: Life) -> None:
    ref = {"natsConnectorSecretRef": {"name": "s", "key": "k"}, "natsConnector": "nats://u@x"}
    life.cluster.secrets["s", "k"] = "pw"
    life.cluster.set_master(raw(remote(nats=ref)))
    (source,) = life.round().sources
    life.tracker.record(source, Resources("p", {"cpu": "4"}), life.now_s, DAY)
    life.settle()
    life.cluster.secrets.clear()
    life.settle(after_s=5)
    assert life.condition("NATSConnected")[0] == "False"
    assert "Secret ours/s: not found" in life.condition("NATSConnected")[2]
    assert life.flavors() == {"mq.g.p"}
    life.settle(after_s=30)
    assert life.flavors() == set()


def test_flavors_of_the_same_source_share_its_connection(life: Life) -> None:
    life.cluster.set_master(raw(remote("a"), remote("b", nats={"poolTimeout": 20})))
    (settings,) = life.round().sources.values()
    assert settings.password == "pw"


def test_who_publishes_too_rarely_is_named(life: Life) -> None:
    life.cluster.set_master(raw(remote()))
    life.say("p", cpu=4)
    life.settle()
    assert life.condition("PoolsHealthy")[1] == "AllAlive"
    life.now_s += 20
    life.say("p", cpu=4)
    life.settle()
    assert life.condition("PoolsHealthy")[1] == "Warning"
    assert "p: speaks every 20 s only, and poolTimeout is 30 s" in life.condition("PoolsHealthy")[2]


def test_a_pool_in_trouble_says_why_as_long_as_it_counts_and_after_that(life: Life) -> None:
    life.cluster.set_master(raw(remote()))
    life.say("p", cpu=4)
    life.settle()
    words = "its batch system cannot be asked"
    for _ in range(3):
        life.now_s += 9
        life.hear(Resources("p", {"cpu": "4"}, interval_s=9, trouble="no valid token: revoked"))
        life.settle()
        assert life.flavors() == {"mq.g.p"}
        assert life.condition("PoolsHealthy")[1:] == (
            "Warning",
            f"p: {words}: no valid token: revoked",
        )
        (pool,) = life.status()["pools"]
        assert (pool["state"], pool["effective"]) == ("Active", {"cpu": "4"})
        assert pool["message"] == f"{words}: no valid token: revoked"
    life.settle(after_s=3)
    assert life.flavors() == set()
    assert life.condition("PoolsHealthy")[1:] == (
        "PoolsLost",
        f"p: {words} for 30 s (poolTimeout): no valid token: revoked",
    )


# --- restarts -------------------------------------------------------------------------------------


def test_a_restart_waits_for_pools_as_long_as_their_timeout(life: Life) -> None:
    life.cluster.set_master(raw(remote()))
    life.say("p", cpu=4)
    life.settle()
    life.restart()
    writes = life.cluster.writes
    life.settle(after_s=3600)  # it was away for an hour
    assert life.flavors() == {"mq.g.p"}
    assert life.cluster.writes == writes
    life.settle(after_s=29)
    assert life.flavors() == {"mq.g.p"}
    life.settle(after_s=1)
    assert life.flavors() == set()


def test_once_waits_for_nobody(life: Life) -> None:
    life.cluster.set_master(raw(remote()))
    life.say("p", cpu=4)
    life.say("q", cpu=4)
    life.settle()
    life.restart(strict=True)
    life.now_s += 300
    life.say("q", cpu=3)  # it has answered to hello
    life.settle()
    assert life.flavors() == {"mq.g.q"}


# --- any life -------------------------------------------------------------------------------------

POOLS = st.sampled_from(["a", "b", "C_", "d"])
MASTERS = st.sampled_from(
    [
        raw(remote()),
        raw(remote(canLendTo=[lends("x", cpu=1)])),
        raw(remote(canLendTo=[lends("x"), lends("y")]), local()),
        raw(remote("h", nats={"poolRegExp": "[a-c]"}), remote("g")),
        raw(local(), remote(), drain=["a"]),
    ]
)
HAPPENINGS = st.one_of(
    st.tuples(st.just("say"), POOLS, st.integers(0, 9)),
    st.tuples(st.just("wait"), st.integers(1, 40)),
    st.tuples(st.just("master"), MASTERS),
    st.just(("drop",)),
    st.just(("restart",)),
    st.just(("round",)),
    st.just(("fail",)),
    st.just(("local",)),
    st.just(("local", "is deleted")),
    st.just(("deaf",)),
    st.just(("hearing",)),
)
AGAIN = Unreachable("the cluster", "gone for a moment")


def happen(life: Life, what: tuple[Any, ...]) -> None:
    cluster = life.cluster
    if what[0] == "say":
        life.say(what[1], cpu=what[2])
    elif what[0] == "wait":
        life.now_s += what[1]
    elif what[0] == "master":
        cluster.set_master(what[1])
    elif what[0] == "restart":
        life.restart()
    elif what[0] in ("round", "fail"):
        cluster.failures = [AGAIN] if what[0] == "fail" else []
        try:
            life.round()
        except Unreachable:
            life.troubles = {}
        cluster.failures = []
    else:
        happen_to_cluster(cluster, *what)


def happen_to_cluster(cluster: ClusterInMemory, what: str, *more: Any) -> None:
    if what == "drop" and cluster.owners:
        cluster.drop_master("mq")
    elif what == "local":
        if "local" not in cluster.objects[FLAVORS]:
            cluster.put(FLAVORS, "local")
        elif more:
            cluster.objects[FLAVORS]["local"]["metadata"]["deletionTimestamp"] = "now"
    elif what in ("deaf", "hearing"):
        cluster.deaf = what == "deaf"


@settings(max_examples=50)
@given(happenings=st.lists(HAPPENINGS, max_size=25), last=MASTERS)
def test_whatever_happens_no_write_is_unsafe_and_all_comes_to_what_is_planned(
    happenings: list[tuple[Any, ...]], last: dict[str, Any]
) -> None:
    life = Life()
    for what in happenings:
        happen(life, what)
        assert life.cluster.unsafe == []
    life.cluster.deaf = False
    life.cluster.set_master(last)
    for pool in "ab":
        life.say(pool, cpu=1)
    life.settle()
    life.now_s += 31
    for pool in "ab":
        life.say(pool, cpu=1)
    life.settle()
    assert life.cluster.unsafe == []
    alone = Life(now_s=life.now_s)  # the same, without a past
    alone.cluster.set_master(last)
    if "local" in life.cluster.objects[FLAVORS]:
        alone.cluster.put(FLAVORS, "local")
    for pool in "ab":
        alone.say(pool, cpu=1)
    alone.settle()
    for plural in (FLAVORS, QUEUES):
        there, wanted = life.cluster.objects[plural], alone.cluster.objects[plural]
        assert there.keys() == wanted.keys()
        for name, item in there.items():
            assert item["spec"] == wanted[name]["spec"]
    assert {
        p["name"]: p["state"] for p in life.status()["pools"] if p["state"] != planner.LOST
    } == {p["name"]: p["state"] for p in alone.status()["pools"] if p["state"] != planner.LOST}
