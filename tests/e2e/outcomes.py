"""What became of a pod, as kubectl shows it, so that two places can be compared."""

from __future__ import annotations

from typing import Any

from tests.e2e.users import User
from tests.kueue_bed import Refused

Json = dict[str, Any]


def outcome(user: User, name: str) -> dict[str, Any]:
    """Names like ``main/c0/exit``, with what stands there."""
    status = user.pod(name)["status"]
    found: dict[str, Any] = {"phase": status["phase"]}
    for kind, key in (("init", "initContainerStatuses"), ("main", "containerStatuses")):
        for container in status.get(key) or ():
            for what, value in _of(container).items():
                found[f"{kind}/{container['name']}/{what}"] = value
            log = _log(user, name, container["name"])
            found[f"{kind}/{container['name']}/log"] = log
    return found


def _of(container: Json) -> Json:
    state = container["state"]
    end = state.get("terminated") or {}
    last = (container.get("lastState") or {}).get("terminated") or {}
    return {
        "state": next(iter(state), ""),
        "exit": end.get("exitCode"),
        "message": end.get("message", ""),
        "restarts": container["restartCount"],
        "last-exit": last.get("exitCode"),
    }


def _log(user: User, pod: str, container: str) -> str:
    try:
        return user.log(pod, "--container", container)
    except Refused:
        return ""
