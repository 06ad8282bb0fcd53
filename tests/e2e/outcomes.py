"""What became of a pod, as its API object shows it, so that two places can be compared."""

from __future__ import annotations

from typing import Any

from tests.e2e.users import User
from tests.support.kueue_api import Refused

Json = dict[str, Any]

# Stands for all that a kubelet says of a container that it does not find any more.
FORGOTTEN = object()

# Reasons that say more than an exit code. interLink replaces reasons, so that ours are in messages.
CAUSES = ("OOMKilled", "DeadlineExceeded", "Evicted", "StartError")


def outcome(user: User, name: str) -> Json:
    """Names like ``main/c0/exit``, with what stands there."""
    status = user.pod(name)["status"]
    found: Json = {"phase": status["phase"]}
    texts = _texts(status)
    for kind, key in (("init", "initContainerStatuses"), ("main", "containerStatuses")):
        for container in status.get(key) or ():
            place = f"{kind}/{container['name']}"
            for what, value in _of(container).items():
                found[f"{place}/{what}"] = value
            known = found[f"{place}/state"] is not FORGOTTEN
            found[f"{place}/log"] = _log(user, name, container["name"]) if known else FORGOTTEN
            texts += _texts(container["state"].get("terminated") or {})
    found["cause"] = " ".join(cause for cause in CAUSES if any(cause in text for text in texts))
    return found


def differences(real: Json, ours: Json) -> dict[str, tuple[Any, Any]]:
    """What is not the same, as it is on the real node and with us."""
    return {
        what: (real.get(what), ours.get(what))
        for what in sorted({*real, *ours})
        if real.get(what) != ours.get(what)
    }


def forgotten(found: Json) -> set[str]:
    """What a kubelet no longer knows: it removes containers that have ended."""
    return {what for what, value in found.items() if _is_forgotten(what, value)}


def _is_forgotten(what: str, value: Any) -> bool:
    if value is FORGOTTEN:
        return True
    if what.endswith("/last-exit"):
        return value is None
    return what.endswith("/log") and str(value).startswith("unable to retrieve container logs")


def _texts(of: Json) -> list[str]:
    return [of.get("reason") or "", of.get("message") or ""]


def _of(container: Json) -> Json:
    state = container["state"]
    end = state.get("terminated") or {}
    last = (container.get("lastState") or {}).get("terminated") or {}
    # It is said to wait first, and to have been ended later; interLink puts the reason into words.
    if any("ContainerStatusUnknown" in text for text in _texts(end or last)):
        return dict.fromkeys(("state", "exit", "message", "restarts", "last-exit"), FORGOTTEN)
    return {
        "state": next(iter(state), ""),
        "exit": end.get("exitCode"),
        "message": end.get("message", ""),
        "restarts": container["restartCount"],
        "last-exit": last.get("exitCode"),
    }


def _log(user: User, pod: str, container: str) -> str:
    try:
        return user.bed.api.log(pod, container, user.name)
    except Refused:
        return ""
