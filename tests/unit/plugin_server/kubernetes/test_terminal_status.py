"""What the plugin writes of a pod that has ended is what the virtual kubelet would have written."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from plugin_server.interlink.requests import read_pod
from plugin_server.kubernetes.client import PodApi
from plugin_server.kubernetes.terminal_status import TerminalStatusWriter, ended_status
from plugin_server.state.job_table import JobTable
from plugin_server.state.pending_deletes import Deletions
from tests.unit.plugin_server.interlink.test_responses import answer_for, ended
from tests.unit.plugin_server.pod_builders import containers, pod, status
from tests.unit.plugin_server.virtual_kubelet import VirtualKubelet

SIDECAR = {"name": "proxy", "image": "busybox", "restartPolicy": "Always"}
INITS = [{"name": name, "image": "busybox"} for name in ("one", "two", "three")]
TWO = [{"name": name, "image": "busybox"} for name in ("main", "other")]


def codes_of(shown: dict[str, Any]) -> dict[str, Any]:
    every = [*(shown.get("initContainerStatuses") or ()), *shown["containerStatuses"]]
    return {one["name"]: one["state"].get("terminated", {}).get("exitCode") for one in every}


@pytest.mark.parametrize(
    ("spec", "ends", "phase"),
    [
        ({}, {"main": 0}, "Succeeded"),
        ({}, {"main": 3}, "Failed"),
        ({"containers": TWO}, {"main": 3, "other": 0}, "Failed"),
        ({"initContainers": [SIDECAR]}, {"proxy": 143, "main": 0}, "Succeeded"),
        ({"initContainers": INITS}, {"one": 0, "two": 0, "three": 0, "main": 4}, "Failed"),
        ({"initContainers": INITS}, {"one": 0, "two": 3, "three": 0, "main": 0}, "Failed"),
    ],
)
def test_an_end(spec: dict[str, Any], ends: dict[str, int], phase: str) -> None:
    raw = pod(**spec)
    found = containers(raw, **{name: ended(code) for name, code in ends.items()})
    kubelet = VirtualKubelet(raw)
    job = status(raw, "ended", containers=found)
    while True:  # an introduction may come first
        before = copy.deepcopy(kubelet.pod)
        kubelet.take([answer_for(before, job)])
        if kubelet.phase != "Pending":
            break
    written = ended_status(before, read_pod(before), job)
    assert written["phase"] == kubelet.phase == phase
    assert codes_of(written) == codes_of(kubelet.status)


class Api(PodApi):
    """What Kubernetes has, and what is written there."""

    def __init__(self, *pods: dict[str, Any]) -> None:
        self.pods = pods
        self.written: list[tuple[str, str]] = []  # uid and phase

    def list_unended_pod_uids(self) -> set[str]:
        return {raw["metadata"]["uid"] for raw in self.pods}

    def read_pod(self, namespace: str, name: str) -> Any:
        return next(raw for raw in self.pods if raw["metadata"]["name"] == name)

    def write_status(self, read_pod: dict[str, Any], status: dict[str, Any]) -> None:
        self.written.append((read_pod["metadata"]["uid"], status["phase"]))


@pytest.mark.parametrize("is_sent", [False, True])
@pytest.mark.parametrize("named", ["a", ""])
@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_of_the_end_of_a_pod_its_own_pool_alone_is_believed(
    is_sent: bool, named: str, order: tuple[str, str]
) -> None:
    raw = pod(pool=named)
    api, table = Api(raw), JobTable()
    writer = TerminalStatusWriter(
        api, 0, table, Deletions([], str), lambda: "cluster", lambda pool: None
    )
    if is_sent or not named:
        table.add_accepted("a", status(raw, "queued", origin="cluster"))
    for pool in order:
        code = 0 if pool == "a" else 1
        found = containers(raw, main=ended(code))
        table.put(pool, status(raw, "ended", origin="cluster", containers=found))
    for _ in range(3):
        writer.look()
    assert api.written[:1] == [(raw["metadata"]["uid"], "Succeeded")]
    assert {phase for _, phase in api.written} == {"Succeeded"}
