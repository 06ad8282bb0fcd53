"""What a pod of a site's cluster says, as records and observations; and what its cluster offers."""

from __future__ import annotations

from typing import Any

import pytest

from submitter.backends.kubernetes import states
from submitter.backends.kubernetes.capacity import parse_quota, sum_nodes
from templates.job.records import JobState, fold, parse_lines

JOB = "job-6dab9b0e-8b6c-4d3c-8adf-9f04d2a7b987"
BEGIN, END = "2026-11-19T05:00:01Z", "2026-11-19T05:00:03Z"


def pod(phase: str, *containers: dict[str, Any], version: int = 7, **status: Any) -> dict[str, Any]:
    metadata = {"name": JOB, "resourceVersion": str(version), "creationTimestamp": BEGIN}
    told = {"phase": phase, "startTime": BEGIN, "containerStatuses": [*containers], **status}
    return {"metadata": metadata, "spec": {"nodeName": "n1"}, "status": told}


def container(restarts: int = 0, last: Any = None, **state: Any) -> dict[str, Any]:
    ready = "running" in state
    return {
        "name": "main",
        "restartCount": restarts,
        "state": state,
        "lastState": {"terminated": last} if last else {},
        "started": ready,
        "ready": ready,
    }


def folded(*pods: dict[str, Any]) -> JobState:
    text = "".join(
        f"interlink1 job={JOB} run={states.read_run(one)} stream={line.stream} "
        f"n={line.number} at=5 {line.values} ;\n"
        for one in pods
        for line in states.read_records(one)
    )
    return fold(parse_lines(text.encode()))


def ended(code: int, **more: Any) -> dict[str, Any]:
    return {"exitCode": code, "startedAt": BEGIN, "finishedAt": END, **more}


def test_a_pod_that_waits_for_a_node_has_the_schedulers_words() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    waits = pod("Pending", startTime=None, conditions=[{**condition, "message": "0/3 nodes"}])
    seen = states.observe(waits)
    assert (seen.phase, seen.reason, seen.message) == ("queued", "Unschedulable", "0/3 nodes")
    assert not [*states.read_records(waits)]


def test_a_pod_that_waits_in_a_queue_of_the_clusters_says_what_holds_it() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    waits = pod("Pending", startTime=None, conditions=[{**condition, "message": "it is gated"}])
    waits["spec"] = {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}
    seen = states.observe(waits)
    assert (seen.phase, seen.reason) == ("queued", "SchedulingGated")
    assert seen.message == "it is gated: kueue.x-k8s.io/admission"


def test_a_container_that_waits() -> None:
    waiting = {"reason": "ImagePullBackOff", "message": "back-off, wait"}
    main = folded(pod("Pending", container(waiting=waiting))).containers["main"]
    assert (main.state, main.reason, main.message) == (
        "waiting",
        "ImagePullBackOff",
        waiting["message"],
    )


def test_a_container_that_an_evicted_pods_node_has_lost() -> None:
    """It says at first that it waits, and that what it had before is lost."""
    lost = ended(137, reason="ContainerStatusUnknown", message="could not be located")
    lost.update(startedAt=None, finishedAt=None)
    runs = pod("Running", container(running={"startedAt": BEGIN}), version=6)
    waits = container(1, lost, waiting={"reason": "ContainerCreating"})
    over = pod("Failed", waits, reason="Evicted", message="too large")
    main = folded(runs, over).containers["main"]
    assert main.end is not None
    assert (main.state, main.restarts, main.end.exit_code) == ("terminated", 1, 137)
    assert main.end.reason == "ContainerStatusUnknown"
    assert main.end.message == "Evicted: too large: could not be located"
    assert states.observe(over).exit_code == 137


def test_a_life() -> None:
    runs = pod("Running", container(running={"startedAt": BEGIN}), version=8)
    over = pod("Failed", container(terminated=ended(7, message="ä")), version=9)
    state = folded(pod("Pending", container(waiting={"reason": "ContainerCreating"})), runs)
    assert (state.node, state.containers["main"].ready, state.finished_ms) == ("n1", True, 0)
    state = folded(runs, over, runs, over)
    end = state.containers["main"].end
    assert end is not None
    assert (end.exit_code, end.reason, end.message) == (7, "Error", "ä")
    assert end.finished_ms - end.started_ms == 2000
    assert (state.exit_code, state.finished_ms) == (7, 5)
    seen = states.observe(over)
    assert (seen.phase, seen.exit_code, seen.at_ms) == ("ended", 7, end.finished_ms)


def test_a_restart_that_nobody_saw_is_known_by_the_last_end() -> None:
    again = container(1, ended(3, reason="OOMKilled"), running={"startedAt": END})
    main = folded(pod("Running", again)).containers["main"]
    assert (main.state, main.restarts) == ("running", 1)
    assert main.last_end is not None
    assert (main.last_end.exit_code, main.last_end.reason) == (3, "OOMKilled")


def test_a_pod_that_was_evicted_says_so() -> None:
    evicted = pod("Failed", reason="Evicted", message="disk pressure")
    assert states.observe(evicted).message == "Evicted: disk pressure"
    assert folded(evicted).message == "Evicted: disk pressure"
    assert folded(evicted).exit_code == 1


def test_containers_that_end_because_the_pod_does_say_why() -> None:
    late = {"reason": "DeadlineExceeded", "message": "Pod was active for too long"}
    stopped, done = container(terminated=ended(143, message="bye")), container(terminated=ended(0))
    over = folded(pod("Failed", stopped, {**done, "name": "well"}, **late))
    ends = {name: state.end.message for name, state in over.containers.items() if state.end}
    assert ends == {"main": "DeadlineExceeded: Pod was active for too long: bye", "well": ""}
    # Until the pod is over, it may be that the container has ended by itself.
    runs = folded(pod("Running", container(terminated=ended(1)), **late))
    assert [state.end.message for state in runs.containers.values() if state.end] == [""]


def test_a_pod_that_is_gone() -> None:
    gone = states.observe_deleted(pod("Running", container(running={"startedAt": BEGIN})))
    assert (gone.phase, gone.exit_code) == ("ended", 137)
    assert gone.message == "the pod was deleted in the site's cluster"
    assert states.observe_deleted(pod("Succeeded", container(terminated=ended(0)))).exit_code == 0


@pytest.mark.parametrize("kind", ["DisruptionTarget", "TerminationTarget"])
def test_a_pod_that_the_cluster_ends_says_why(kind: str) -> None:
    condition = {"type": kind, "status": "True", "reason": "Preempted", "message": "for another"}
    runs = pod("Running", container(running={"startedAt": BEGIN}), conditions=[condition])
    assert states.observe_deleted(runs).message == "Preempted: for another"
    over = pod("Failed", container(terminated=ended(143)), conditions=[condition])
    assert states.observe(over).message == "Preempted: for another"
    over["status"]["conditions"][0]["status"] = "False"
    assert states.observe(over).message == ""


# --- what is offered ------------------------------------------------------------------------------


def test_a_quota() -> None:
    hard = {
        "requests.cpu": "8",
        "cpu": "9",
        "limits.cpu": "16",
        "memory": "4Gi",
        "pods": "5",
        "requests.nvidia.com/gpu": "2",
        "requests.storage": "1Ti",
        "count/secrets": "7",
    }
    assert parse_quota(hard) == {"cpu": "8", "memory": "4Gi", "pods": "5", "nvidia.com/gpu": "2"}


def node(ready: str, unschedulable: bool = False, **allocatable: str) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": ready}]
    return {
        "spec": {"unschedulable": unschedulable},
        "status": {"conditions": conditions, "allocatable": allocatable},
    }


def test_nodes_that_take_pods_are_added_up() -> None:
    nodes = [
        node("True", cpu="1500m", memory="1Gi", pods="110"),
        node("True", cpu="2", memory="512Mi", pods="110"),
        node("Unknown", cpu="64"),
        node("True", True, cpu="64"),
    ]
    assert sum_nodes(nodes) == {"cpu": "3500m", "memory": str(1536 * 2**20), "pods": "220"}
