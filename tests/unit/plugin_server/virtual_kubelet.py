"""What interLink's virtual kubelet makes of our answers, and what Kubernetes takes from it.

Written after checkPodsStatus of interLink 0.6.2: init containers first, then containers; what is
new is appended and then changed at index 0. ``Crash`` is where Go would dereference nil.
"""

from __future__ import annotations

import copy
from typing import Any

State = dict[str, Any]


class Crash(AssertionError):
    """The virtual kubelet has ended, with all its pods."""


class Regress(AssertionError):
    """The API server refuses the status: an ended container must not live again."""


class VirtualKubelet:
    """One pod as the virtual kubelet keeps it."""

    def __init__(self, pod: State) -> None:
        self.pod = copy.deepcopy(pod)
        self.phases: list[str] = []

    @property
    def status(self) -> State:
        found: State = self.pod["status"]
        return found

    @property
    def phase(self) -> str:
        found: str = self.status["phase"]
        return found

    def take(self, answer: list[State]) -> None:
        """One pass of its loop over this pod."""
        if self.phase in ("Failed", "Succeeded") or not answer:
            return
        remote = copy.deepcopy(answer[0])
        check_types(remote)
        if not remote["name"]:
            return
        assert remote["UID"] == self.pod["metadata"]["uid"]
        before = copy.deepcopy(self.status)
        inits = remote.get("initContainers") or []
        containers = remote.get("containers") or []
        waiting = running = False
        failed_init, ended_inits = "", 0
        if inits:
            waiting, running, failed_init, ended_inits = self._take_inits(inits)
        ended, failed, is_running = self._take_containers(
            containers, waiting, running, f"Init:{ended_inits}/{len(inits)}"
        )
        if ended == len(containers):
            self._complete(failed, failed_init)
        else:
            if running:
                self.status.update(phase="Pending", reason="Init")
            if waiting:
                self.status.update(phase="Pending", reason="Waiting for init containers")
            if is_running and self.phase != "Running":
                self.status.update(phase="Running", reason="Running")
        self._check(before)
        self.phases.append(self.phase)

    def _take_inits(self, inits: list[State]) -> tuple[bool, bool, str, int]:
        known = self.status.setdefault("initContainerStatuses", [])
        waiting = running = False
        failed, ended = "", 0
        for remote in inits:
            index = _place(known, remote)
            state = remote["state"]
            target = known[index]["state"]
            if "terminated" in state:
                ended += 1
                if "terminated" not in target:
                    raise Crash(f"{remote['name']}: entry {index} has not ended")
                target["terminated"]["exitCode"] = state["terminated"]["exitCode"]
                target["terminated"]["reason"] = "Completed"
                if state["terminated"]["exitCode"] != 0:
                    failed = f"Error: {state['terminated']['exitCode']}"
                    target["terminated"]["reason"] = failed
            elif "waiting" in state:
                waiting = True
                target["waiting"] = state["waiting"]
            elif "running" in state:
                running = True
                target["running"] = state["running"]
                target.pop("waiting", None)
        if ended == len(inits):
            waiting = False
        return waiting, running, failed, ended

    def _take_containers(
        self, containers: list[State], waiting: bool, initializing: bool, progress: str
    ) -> tuple[int, str, bool]:
        known = self.status.setdefault("containerStatuses", [])
        ended, failed, is_running = 0, "", False
        for remote in containers:
            index = _place(known, remote)
            state, target = remote["state"], known[index]
            if waiting or initializing:
                reason = progress if initializing else "PodInitializing"
                target["state"] = {"waiting": {"reason": reason}}
            elif "terminated" in state:
                ended += 1
                if "terminated" not in target["state"]:
                    raise Crash(f"{remote['name']}: entry {index} has not ended")
                reason = "Completed"
                if state["terminated"]["exitCode"] != 0:
                    reason = failed = f"Error: {state['terminated']['exitCode']}"
                target["state"]["terminated"]["reason"] = reason
            elif "waiting" in state:
                pass
            elif "running" in state:
                is_running = True
                target["ready"] = True
                target["state"]["running"] = state["running"]
        return ended, failed, is_running

    def _complete(self, failed: str, failed_init: str) -> None:
        if not failed and not failed_init:
            self.status.update(phase="Succeeded", reason="Completed")
            return
        self.status.update(phase="Failed", reason=failed or failed_init)
        for entry in self.status["containerStatuses"]:
            if "terminated" not in entry["state"]:
                raise Crash(f"{entry['name']}: has not ended, in a pod that has failed")
            entry["state"]["terminated"]["reason"] = failed or failed_init

    def _check(self, before: State) -> None:
        """What the API server refuses: 422, and the pod's status stays what it was."""
        policy = self.pod["spec"].get("restartPolicy", "Always")
        if policy == "Always":
            return
        sidecars = {
            entry["name"]
            for entry in self.pod["spec"].get("initContainers", ())
            if entry.get("restartPolicy") == "Always"
        }
        for key in ("initContainerStatuses", "containerStatuses"):
            now = {entry["name"]: entry["state"] for entry in self.status.get(key, ())}
            for entry in before.get(key, ()):
                old = entry["state"].get("terminated")
                if old is None or entry["name"] in sidecars:
                    continue
                if policy == "OnFailure" and old["exitCode"] != 0:
                    continue
                if "terminated" not in now[entry["name"]]:
                    raise Regress(f"{entry['name']}: {entry['state']} -> {now[entry['name']]}")


def _place(known: list[State], remote: State) -> int:
    """Its index; what is new is appended, and its index is 0 nevertheless."""
    for index, entry in enumerate(known):
        if entry["name"] == remote["name"]:
            known[index] = {**remote, "state": dict(remote["state"])}
            return index
    known.append({**remote, "state": dict(remote["state"])})
    return 0


def check_types(remote: State) -> None:
    """What Go could not decode would leave the status as it is, for ever."""
    for key in ("name", "UID", "namespace", "JID"):
        assert type(remote[key]) is str
    for entry in [*remote.get("containers", ()), *remote.get("initContainers", ())]:
        assert type(entry["name"]) is str
        assert entry["image"] and type(entry["image"]) is str
        assert type(entry["ready"]) is bool
        assert type(entry["restartCount"]) is int
        assert set(entry["state"]) <= {"waiting", "running", "terminated"}
        assert len(entry["state"]) <= 1
        _check_end(entry["state"].get("terminated"))
        _check_end(entry.get("lastState", {}).get("terminated"))
        _check_time(entry["state"].get("running", {}).get("startedAt"))


def _check_end(ended: State | None) -> None:
    if ended is not None:
        assert type(ended["exitCode"]) is int and -(2**31) <= ended["exitCode"] < 2**31
        _check_time(ended.get("startedAt"))
        _check_time(ended.get("finishedAt"))
        assert type(ended.get("message", "")) is str


def _check_time(text: str | None) -> None:
    if text is not None:
        assert len(text) == 20 and text[10] == "T" and text[-1] == "Z", text
