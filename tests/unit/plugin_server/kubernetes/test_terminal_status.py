"""What the plugin writes of a pod that has ended is what the virtual kubelet would have written."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from plugin_server.interlink.requests import read_pod
from plugin_server.kubernetes.terminal_status import ended_status
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
