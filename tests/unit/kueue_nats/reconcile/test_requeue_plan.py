"""Which Workloads are given back, and that what was begun is finished."""

from __future__ import annotations

from typing import Any

import pytest

from kueue_nats.plan.planner import plan
from kueue_nats.pools.tracker import PoolRecord, restored_record
from kueue_nats.reconcile.requeue import Requeuer
from kueue_nats.reconcile.requeue_plan import RETURNED_ANNOTATION, has_pending, workload_patches
from templates.protocol.publications import Resources
from tests.unit.kueue_nats.masters import SOURCE, heard, master, offer


def workload(name: str, flavor: str = "f", **more: Any) -> dict[str, Any]:
    """One that was admitted on a flavor."""
    conditions = {"QuotaReserved": True, "Admitted": True, **more.get("conditions", {})}
    return {
        "metadata": {"name": name, "namespace": "team", **more.get("metadata", {})},
        "spec": {"active": more.get("active", True)},
        "status": {
            "admission": {"podSetAssignments": [{"flavors": {"cpu": flavor, "memory": flavor}}]},
            "conditions": [
                {"type": kind, "status": str(holds)} for kind, holds in conditions.items()
            ],
        },
    }


def marked(name: str, **conditions: bool) -> dict[str, Any]:
    metadata = {"annotations": {RETURNED_ANNOTATION: "f"}}
    return workload(name, metadata=metadata, active=False, conditions=conditions)


def pod(workload_name: str, phase: str, **statuses: Any) -> dict[str, Any]:
    annotations = {"kueue.x-k8s.io/workload": workload_name}
    metadata = {"namespace": "team", "annotations": annotations}
    return {"metadata": metadata, "status": {"phase": phase, **statuses}}


def container(state: str = "", reason: str = "", **more: Any) -> dict[str, Any]:
    """The status of a container; without a state for a sidecar that has begun."""
    of = {state: {"reason": reason} if reason else {}} if state else {}
    return {"state": of, "ready": False, "restartCount": 0, "lastState": {}, **more}


def given_back(workloads: list[Any], pods: list[Any] = [], idle: str = "") -> list[str]:  # noqa: B006
    made = workload_patches(workloads, pods, {"f": "it is lost"}, frozenset([idle]))
    return [patch.name for patch in made if patch.body["spec"]["active"] is False]


def test_who_is_on_the_flavor_is_deactivated_with_a_mark() -> None:
    (patch,) = workload_patches(
        [workload("a"), workload("b", "g")], [], {"f": "it is lost"}, frozenset()
    )
    assert (patch.namespace, patch.name) == ("team", "a")
    assert patch.body == {
        "metadata": {"annotations": {RETURNED_ANNOTATION: "f"}},
        "spec": {"active": False},
    }
    assert patch.message == "given back to Kueue: it is lost"


@pytest.mark.parametrize(
    "other",
    [
        workload("x", conditions={"Admitted": False}),
        workload("x", conditions={"Finished": True}),
        workload("x", metadata={"deletionTimestamp": "now"}),
        workload("x", active=False),  # its owner has stopped it
        workload("x", "g"),
    ],
)
def test_who_is_not_on_it_or_has_ended_stays(other: dict[str, Any]) -> None:
    assert given_back([other]) == []


@pytest.mark.parametrize(
    ("phases", "goes"),
    [
        ([], True),
        (["Pending"], True),
        (["Pending", "Pending"], True),
        (["Running"], False),
        (["Pending", "Running"], False),
        (["Succeeded"], False),
    ],
)
def test_of_a_lost_pool_only_what_has_not_started_goes(phases: list[str], goes: bool) -> None:
    pods = [*(pod("a", phase) for phase in phases), pod("other", "Running")]
    assert given_back([workload("a")], pods, idle="f") == (["a"] if goes else [])
    assert given_back([workload("a")], pods) == ["a"]  # of a drained one, all that is there


@pytest.mark.parametrize(
    ("phase", "inits", "mains", "goes"),
    [
        # before 0.6, just sent; then told to wait
        ("Pending", [], [container("running", ready=True)], True),
        ("Running", [], [container("waiting", "Queued", started=False)], True),
        ("Running", [], [], False),
        ("Running", [], [container("waiting", "Queued"), container("terminated")], False),
        ("Running", [], [container("waiting", "CrashLoopBackOff", restartCount=1)], False),
        # since 0.6, a pod is Pending until a container is ready
        ("Pending", [], [container("waiting", "Queued", started=False)], True),
        ("Pending", [], [container("waiting", "NotReady", started=False)], False),
        ("Pending", [], [container("waiting", "NotReady", started=True)], False),
        # and as long as its init containers run
        ("Pending", [container("waiting", "Queued")] * 2, [container("waiting", "Queued")], True),
        ("Pending", [container("running", started=True)], [container("waiting")], False),
        ("Pending", [container("terminated"), container("waiting")], [], False),
        ("Pending", [container(started=True), container("waiting")], [], False),
    ],
)
def test_what_its_containers_say_counts(
    phase: str, inits: list[Any], mains: list[Any], goes: bool
) -> None:
    found = pod("a", phase, initContainerStatuses=inits, containerStatuses=mains)
    assert given_back([workload("a")], [found], idle="f") == (["a"] if goes else [])


def test_it_is_activated_again_when_kueue_has_let_go_of_its_quota() -> None:
    assert workload_patches([marked("a")], [], {}, frozenset()) == []
    (patch,) = workload_patches([marked("a", QuotaReserved=False)], [], {}, frozenset())
    assert patch.body == {
        "metadata": {"annotations": {RETURNED_ANNOTATION: None}},
        "spec": {"active": True},
    }
    assert (
        workload_patches([marked("a", QuotaReserved=False, Finished=True)], [], {}, frozenset())
        == []
    )


def test_what_is_underway_is_seen_by_its_mark() -> None:
    assert has_pending([workload("a"), marked("b")])
    assert not has_pending([workload("a"), marked("b", Finished=True)])


# --- when -----------------------------------------------------------------------------------------


class Asked:
    """A cluster that counts what it is asked."""

    def __init__(self, *there: dict[str, Any]) -> None:
        self.there, self.asked, self.patched = list(there), 0, list[str]()

    def workloads(self, version: str) -> list[Any]:
        self.asked += 1
        return self.there

    def pods_of_jobs(self) -> list[Any]:
        return []

    def patch_workload(self, version: str, namespace: str, name: str, body: Any) -> None:
        self.patched.append(name)


def go_on(cluster: Asked, back: Requeuer, now_s: float, **more: Any) -> None:
    nats = {"poolTimeout": 30, **more.pop("nats", {})}
    wanted = master(heard(nats=nats), **more.pop("spec", {}))
    lost = "silent" if now_s >= 30 else ""
    made = plan(wanted, {"g": [offer("p", {"cpu": 1}, lost=lost)]}, ())
    records: dict[Any, PoolRecord] = {
        (SOURCE, "p"): restored_record(Resources("p", {"cpu": "1"}), 0.0, 0.0)
    }
    back.run([(wanted, made)], records, now_s, "v1beta2")


@pytest.mark.parametrize(
    ("options", "now_s", "goes"),
    [
        ({}, 10**6, False),  # off by default
        ({"returnAfter": 60}, 29, False),
        ({"returnAfter": 60}, 89, False),
        ({"returnAfter": 60}, 90, True),
        ({"returnAfter": 0}, 30, True),
    ],
)
def test_jobs_of_a_lost_pool_go_after_return_after(
    options: dict[str, Any], now_s: float, goes: bool
) -> None:
    cluster = Asked(workload("a", "mq.g.p"))
    go_on(cluster, Requeuer(cluster), now_s, nats=options)  # type: ignore[arg-type]
    assert cluster.patched == (["a"] if goes else [])


@pytest.mark.parametrize("evict", [False, True])
def test_jobs_of_a_drained_pool_go_when_it_is_asked_for(evict: bool) -> None:
    cluster = Asked(workload("a", "mq.g.p"))
    spec = {"drain": ["p"], "evictDrained": evict}
    go_on(cluster, Requeuer(cluster), 0, spec=spec)  # type: ignore[arg-type]
    assert cluster.patched == (["a"] if evict else [])


def test_workloads_are_looked_at_only_while_there_is_a_reason() -> None:
    cluster = Asked(workload("a", "mq.g.p"))
    back = Requeuer(cluster)  # type: ignore[arg-type]
    for _ in range(5):
        go_on(cluster, back, 0)
    assert cluster.asked == 1  # once: an operator before this one may have begun something
    cluster.there = [marked("a")]
    go_on(cluster, back, 0, spec={"drain": ["p"], "evictDrained": True})
    for _ in range(3):
        go_on(cluster, back, 0)  # the drain is over, and what was begun is not
    assert cluster.asked == 5
    cluster.there = [workload("a", "mq.g.p")]
    for _ in range(3):
        go_on(cluster, back, 0)
    assert cluster.asked == 6
