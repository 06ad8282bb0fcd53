"""Statuses as interLink takes them, on every life that a job can have."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plugin_server.interlink.requests import read_pod
from plugin_server.interlink.responses import (
    format_time,
    lost_status,
    pod_status,
    preliminary_status,
)
from plugin_server.kubernetes.terminal_status import ended_status
from templates.job.records import RUNNING, TERMINATED, WAITING, ContainerState, End
from templates.job.status import ENDED, KINDS, PHASES, ContainerStatus, JobStatus
from tests.unit.plugin_server.job_stories import Story, make_pod
from tests.unit.plugin_server.pod_builders import containers, pod, status
from tests.unit.plugin_server.virtual_kubelet import Crash, Regress, VirtualKubelet

AT = 1795021200123
RECORDINGS = Path(__file__).parents[3] / "data" / "recordings"


def answer_for(raw: dict[str, Any], job: JobStatus) -> dict[str, Any]:
    asked = read_pod(raw)
    said = preliminary_status(asked, job) or pod_status(asked, job)
    answer: dict[str, Any] = json.loads(json.dumps(said))
    return answer


def states(raw: dict[str, Any], job: JobStatus) -> dict[str, Any]:
    answer = answer_for(raw, job)
    return {e["name"]: e["state"] for e in [*answer["initContainers"], *answer["containers"]]}


def running(**changes: Any) -> ContainerState:
    return ContainerState("", RUNNING, started_ms=AT, begun=True, ready=True)._replace(**changes)


def ended(code: int = 0, **changes: Any) -> ContainerState:
    end = End(code, 0, "", "", AT, AT + 2000)._replace(**changes)
    return ContainerState("", TERMINATED, end=end)


def tell(seed: int) -> None:
    """A whole life, of which the virtual kubelet sees some moments."""
    dice = random.Random(seed)
    raw = make_pod(dice)
    story = Story(raw, dice)
    kubelet = VirtualKubelet(raw)
    often = dice.choice((0.2, 0.7, 1.0))
    for job in story.tell():
        if job.phase != ENDED and dice.random() > often:
            continue
        for _ in range(2 if job.phase == ENDED else 1):  # it asks until the pod has ended
            kubelet.take([answer_for(kubelet.pod, job)])
        assert (kubelet.phase in ("Failed", "Succeeded")) == (job.phase == ENDED), job
    assert kubelet.phase == ("Failed" if story.failed else "Succeeded")


@settings(max_examples=500, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**64))
def test_no_life_of_a_job_crashes_the_virtual_kubelet_or_ends_wrongly(seed: int) -> None:
    tell(seed)


@pytest.mark.slow
@settings(max_examples=50_000, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**64))
def test_no_life_of_a_job_at_all_does(seed: int) -> None:
    tell(seed)


# --- whatever a site publishes --------------------------------------------------------------------

SIDECAR_SPEC = {"name": "proxy", "image": "busybox", "restartPolicy": "Always"}
INIT_SPEC = {"name": "prep", "image": "busybox"}


def any_state() -> list[ContainerState]:
    """Each state that a container can have in a well-formed publication."""
    crashed = ContainerState("", WAITING, restarts=1, last_end=_end({"exit_code": 1}))
    return [ContainerState(""), crashed, running(), running(ready=False), ended(), ended(3)]


def check(raw: dict[str, Any], job: JobStatus) -> None:
    """There is a response; and one that ends the pod if its job has ended."""
    asked = read_pod(raw)
    preliminary_status(asked, job)
    answer = pod_status(asked, job)
    json.dumps(answer)
    assert {entry["name"] for entry in answer["containers"]} == {"main"}, job
    if job.phase == ENDED:
        entries = [*answer["initContainers"], *answer["containers"]]
        assert all("terminated" in entry["state"] for entry in entries), job
        json.dumps(ended_status(raw, asked, job))


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("exit_code", [0, 3])
def test_any_states_of_containers_in_any_phase_give_a_response(phase: str, exit_code: int) -> None:
    """Of any kind, too, and also none: a site may not know what stands in the pod."""
    raw = pod(initContainers=[INIT_SPEC, SIDECAR_SPEC])
    each = [None, *(ContainerStatus(k, "i", s) for k in KINDS for s in any_state())]
    job = status(raw, phase, exit_code=exit_code)
    for found in itertools.product(each, repeat=3):
        named = (
            one._replace(state=one.state._replace(name=name))
            for one, name in zip(found, ("prep", "proxy", "main"))
            if one is not None
        )
        check(raw, job._replace(containers=tuple(named)))


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("policy", ["Never", "OnFailure", "Always"])
def test_so_they_do_whatever_was_reported_before(phase: str, policy: str) -> None:
    raw = pod(initContainers=[INIT_SPEC], restartPolicy=policy)
    before = [
        {},
        {"waiting": {}},
        {"running": {}},
        *({"terminated": {"exitCode": c}} for c in (0, 3)),
    ]
    job = status(raw, phase, exit_code=3)
    for init, main in itertools.product(before, repeat=2):
        raw["status"] = {
            "phase": "Running",
            "initContainerStatuses": [{"name": "prep", "state": init}],
            "containerStatuses": [{"name": "main", "state": main}],
        }
        for prep, state in itertools.product(any_state(), repeat=2):
            check(raw, job._replace(containers=containers(raw, prep=prep, main=state)))


@pytest.mark.parametrize("exit_code", [0, 3])
def test_a_job_that_has_ended_ends_its_pod_whatever_its_containers_do(exit_code: int) -> None:
    for prep, proxy, main in itertools.product(any_state(), repeat=3):
        raw = pod(initContainers=[INIT_SPEC, SIDECAR_SPEC])
        found = containers(raw, prep=prep, proxy=proxy, main=main)
        job = status(raw, "ended", exit_code=exit_code, message="over", containers=found)
        kubelet = VirtualKubelet(raw)
        for _ in range(2):
            kubelet.take([answer_for(kubelet.pod, job)])
        codes = [s.end.exit_code if s.end else exit_code for s in (prep, main)]
        assert kubelet.phase == ("Failed" if any(codes) else "Succeeded"), job


# --- the emulation itself -------------------------------------------------------------------------


def element(raw: dict[str, Any], inits: list[Any], mains: list[Any]) -> list[dict[str, Any]]:
    def entries(found: list[Any]) -> list[dict[str, Any]]:
        return [
            {"name": n, "image": "i", "ready": False, "restartCount": 0, "state": s}
            for n, s in found
        ]

    names = {"name": "train-0", "UID": raw["metadata"]["uid"], "namespace": "n", "JID": "j"}
    return [{**names, "initContainers": entries(inits), "containers": entries(mains)}]


def test_the_emulation_lets_a_pod_without_containers_succeed() -> None:
    kubelet = VirtualKubelet(pod())
    kubelet.take(element(kubelet.pod, [], []))
    assert kubelet.phase == "Succeeded"


def test_the_emulation_crashes_when_a_failed_pod_has_a_container_that_is_not_listed() -> None:
    kubelet = VirtualKubelet(pod())
    kubelet.take(element(kubelet.pod, [], [("a", {"running": {}}), ("b", {"running": {}})]))
    with pytest.raises(Crash):
        kubelet.take(element(kubelet.pod, [], [("a", {"terminated": {"exitCode": 1}})]))


def test_the_emulation_crashes_on_an_ended_init_container_behind_one_that_has_not() -> None:
    kubelet = VirtualKubelet(pod())
    inits = [("a", {"running": {}}), ("b", {"terminated": {"exitCode": 0}})]
    with pytest.raises(Crash):
        kubelet.take(element(kubelet.pod, inits, [("main", {"waiting": {}})]))


def test_the_emulation_knows_what_kubernetes_refuses() -> None:
    kubelet = VirtualKubelet(pod())
    done, lives = ("a", {"terminated": {"exitCode": 0}}), ("b", {"running": {}})
    kubelet.take(element(kubelet.pod, [], [done, lives]))
    with pytest.raises(Regress):
        kubelet.take(element(kubelet.pod, [], [("a", {"running": {}}), lives]))


# --- rule by rule ---------------------------------------------------------------------------------


def test_a_queued_pod_waits_with_the_words_of_the_scheduler() -> None:
    raw = pod(initContainers=[{"name": "prep", "image": "busybox"}])
    waiting = ContainerState("", WAITING, "Queued", "Slurm job 17: Priority")
    job = status(raw, "queued", containers=containers(raw, prep=waiting, main=waiting))
    words = {"waiting": {"reason": "Queued", "message": "Slurm job 17: Priority"}}
    assert states(raw, job) == {"prep": words, "main": words}


def test_the_element_names_the_pod_the_job_and_every_image() -> None:
    raw = pod()
    answer = answer_for(raw, status(raw))
    assert (answer["name"], answer["UID"]) == ("train-0", raw["metadata"]["uid"])
    assert (answer["namespace"], answer["JID"]) == ("team-a", status(raw).job)
    assert [entry["image"] for entry in answer["containers"]] == ["busybox"]


def test_a_container_that_has_yet_to_become_ready_is_shown_as_waiting() -> None:
    raw = pod()
    job = status(raw, containers=containers(raw, main=running(ready=False)))
    assert states(raw, job)["main"]["waiting"]["reason"] == "NotReady"


@pytest.mark.parametrize("version", ["0.5.2-pre2", "0.6.2"])
def test_so_it_is_whatever_a_virtual_kubelet_says_of_a_pod_that_it_has_just_sent(
    version: str,
) -> None:
    """That of 0.5 says of its containers that they run."""
    text = (RECORDINGS / version / "status-plain-pending.json").read_text()
    (raw,) = json.loads(text)["body"]
    job = status(raw, containers=containers(raw, c=running(ready=False)))
    assert states(raw, job)["c"]["waiting"]["reason"] == "NotReady"


def test_a_container_that_users_saw_running_goes_on_running_when_it_is_not_ready() -> None:
    raw = pod()
    shown = [{"name": "main", "state": {"running": {}}}]
    raw["status"] = {"phase": "Running", "containerStatuses": shown}
    job = status(raw, containers=containers(raw, main=running(ready=False)))
    (entry,) = answer_for(raw, job)["containers"]
    assert entry["state"] == {"running": {"startedAt": "2026-11-18T17:00:00Z"}}
    assert (entry["ready"], entry["started"]) == (False, True)


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ({"exit_code": 137, "reason": "OOMKilled", "message": "limit 1Gi"}, "OOMKilled: limit 1Gi"),
        ({"exit_code": 143, "signal": 15}, "ended by signal 15"),
        ({"exit_code": 1, "reason": "Error", "message": "bad input"}, "bad input"),
        ({"exit_code": 0, "reason": "Completed"}, ""),
        ({"exit_code": 1, "reason": "DeadlineExceeded"}, "DeadlineExceeded"),
    ],
)
def test_the_cause_of_an_end_stands_in_its_message(end: dict[str, Any], message: str) -> None:
    raw = pod()
    job = status(raw, "ended", containers=containers(raw, main=ended(**{"code": 0, **end})))
    job = status(raw, "ended", containers=containers(raw, main=ended()._replace(end=_end(end))))
    found = states(raw, job)["main"]["terminated"]
    assert (found["exitCode"], found["message"]) == (end["exit_code"], message)
    assert found["finishedAt"] == "2026-11-18T17:00:02Z"


def _end(changes: dict[str, Any]) -> End:
    return End(0, 0, "", "", AT, AT + 2000)._replace(**changes)


def test_a_restarted_container_says_how_often_and_how_it_ended_last() -> None:
    raw = pod()
    state = running(restarts=2, last_end=End(137, 9, "OOMKilled", "", AT, AT))
    (entry,) = answer_for(raw, status(raw, containers=containers(raw, main=state)))["containers"]
    assert entry["restartCount"] == 2
    assert entry["lastState"]["terminated"]["reason"] == "OOMKilled"


def test_the_pod_is_not_over_before_its_job_is() -> None:
    raw = pod()
    job = status(raw, containers=containers(raw, main=ended()))
    assert states(raw, job) == {"main": {"running": {"startedAt": "2026-11-18T17:00:00Z"}}}


def test_behind_a_failed_init_container_nothing_has_run_and_all_has_ended() -> None:
    inits = [{"name": name, "image": "busybox"} for name in ("one", "two", "three")]
    raw = pod(initContainers=inits)
    found = containers(raw, one=ended(), two=ended(3), three=ended(), main=ended())
    job = status(raw, "ended", containers=found)
    kubelet = VirtualKubelet(raw)
    kubelet.take([answer_for(kubelet.pod, job)])
    assert kubelet.phase == "Pending"
    answer = answer_for(kubelet.pod, job)
    assert [entry["name"] for entry in answer["initContainers"]] == ["one", "two"]
    (main,) = answer["containers"]
    assert main["state"]["terminated"]["exitCode"] == 0
    assert main["state"]["terminated"]["message"] == "not started: init container two failed"
    kubelet.take([answer])
    assert kubelet.phase == "Failed"
    *ends, last = [entry["state"] for entry in kubelet.status["initContainerStatuses"]]
    assert [end["terminated"]["exitCode"] for end in ends] == [0, 3]
    assert "waiting" in last


def test_a_sidecar_holds_nobody_back_and_fails_nobody() -> None:
    raw = pod(initContainers=[{"name": "proxy", "image": "busybox", "restartPolicy": "Always"}])
    found = containers(raw, proxy=running(), main=running())
    answer = answer_for(raw, status(raw, containers=found))
    (proxy,) = answer["initContainers"]
    assert (proxy["state"], proxy["ready"], proxy["started"]) == ({}, True, True)
    found = containers(raw, proxy=ended(143), main=ended())
    (proxy,) = answer_for(raw, status(raw, "ended", containers=found))["initContainers"]
    assert proxy["state"]["terminated"]["exitCode"] == 0
    assert proxy["state"]["terminated"]["message"] == "exit code 143"


def test_containers_that_interlink_runs_itself_live_as_long_as_the_job() -> None:
    raw = pod(containers=[{"name": n, "image": "busybox"} for n in ("main", "local")])

    def seen(phase: str, state: ContainerState) -> dict[str, Any]:
        found = containers(raw, main=state)[:1]
        return states(raw, status(raw, phase, containers=found))["local"]

    assert "waiting" in seen("queued", ContainerState(""))
    assert "running" in seen("started", running())
    assert seen("ended", ended(1))["terminated"]["exitCode"] == 0


def test_what_was_shown_as_ended_stays_so_when_the_site_runs_the_job_anew() -> None:
    raw = pod(containers=[{"name": n, "image": "busybox"} for n in ("one", "two")])
    shown = {"exitCode": 0, "finishedAt": "2026-11-18T16:00:00Z", "startedAt": None}
    raw["status"]["containerStatuses"] = [
        {"name": "one", "state": {"terminated": shown}},
        {"name": "two", "state": {"running": {}}},
    ]
    found = states(raw, status(raw, "queued"))
    assert found["one"]["terminated"]["finishedAt"] == "2026-11-18T16:00:00Z"
    assert "waiting" in found["two"]


def test_a_lost_pod_fails_and_says_so() -> None:
    raw = pod(initContainers=[{"name": "prep", "image": "busybox"}])
    kubelet = VirtualKubelet(raw)
    kubelet.take([answer_for(raw, status(raw))])
    kubelet.take([lost_status(read_pod(kubelet.pod), "job", "lost: really")])
    assert kubelet.phase == "Failed"
    (entry,) = kubelet.status["containerStatuses"]
    assert entry["state"]["terminated"]["message"] == "lost: really"


@pytest.mark.parametrize(
    ("at_ms", "text"),
    [
        (0, None),
        (-5, None),
        (AT, "2026-11-18T17:00:00Z"),
        (2**62, None),
        (1, "1970-01-01T00:00:00Z"),
    ],
)
def test_times_are_rfc_3339_or_absent(at_ms: int, text: str | None) -> None:
    assert format_time(at_ms) == text
