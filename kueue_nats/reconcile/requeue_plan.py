"""Requeue jobs that wait at a site nobody hears of, or that a drain is to move.

A Workload is deactivated, which evicts it, suspends its Job and deletes its pods (so the old site
is told to cancel), and is activated again when Kueue has let go of its quota. The mark on it lets a
restarted operator, or another one, finish what was begun.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from templates.job.status import NOT_READY

RETURNED_ANNOTATION = "vk.io/returned-from"

Json = Mapping[str, Any]


class WorkloadPatch(NamedTuple):
    """Change of a Workload."""

    namespace: str
    name: str
    body: dict[str, Any]
    message: str  # for the log; empty for the second half of what was begun


def workload_patches(
    workloads: Iterable[Json], pods: Iterable[Json], leave: Mapping[str, str], idle: frozenset[str]
) -> list[WorkloadPatch]:
    """Return the changes of Workloads; ``leave`` maps flavors to why jobs have to leave them.

    From flavors in ``idle`` only those go of whose pods none has started yet.
    """
    started = {_workload_of(pod) for pod in pods if _has_started(pod.get("status") or {})}
    made = []
    for workload in workloads:
        namespace, name = workload["metadata"]["namespace"], workload["metadata"]["name"]
        if _is_over(workload):
            continue
        if RETURNED_ANNOTATION in (workload["metadata"].get("annotations") or {}):
            if not _holds(workload, "QuotaReserved"):
                made.append(WorkloadPatch(namespace, name, _body(True, None), ""))
            continue
        for flavor in sorted(_flavors(workload) & leave.keys()):
            if flavor not in idle or (namespace, name) not in started:
                message = f"given back to Kueue: {leave[flavor]}"
                made.append(WorkloadPatch(namespace, name, _body(False, flavor), message))
                break
    return made


def has_pending(workloads: Iterable[Json]) -> bool:
    """Return whether some Workload still waits to be activated again."""
    return any(
        RETURNED_ANNOTATION in (workload["metadata"].get("annotations") or {})
        and not _is_over(workload)
        for workload in workloads
    )


def _body(active: bool, flavor: str | None) -> dict[str, Any]:
    annotations = {RETURNED_ANNOTATION: flavor}
    return {"metadata": {"annotations": annotations}, "spec": {"active": active}}


def _flavors(workload: Json) -> set[str]:
    """Return the flavors on which a Workload was admitted."""
    if not _holds(workload, "Admitted") or workload["spec"].get("active") is False:
        return set()
    admission = (workload.get("status") or {}).get("admission") or {}
    return {
        flavor
        for assignment in admission.get("podSetAssignments") or ()
        for flavor in (assignment.get("flavors") or {}).values()
    }


def _has_started(status: Json) -> bool:
    """Return whether any container of a pod has started, as far as interLink tells.

    Before 0.6 it says of a pod whose containers wait that it is Running, and of the containers of
    one that it has just sent, which is Pending, that they run.
    """
    phase = status.get("phase")
    inits = status.get("initContainerStatuses") or ()
    mains = status.get("containerStatuses") or ()
    if phase == "Pending":
        return any(map(_has_begun, inits)) or any(
            _has_begun(main) for main in mains if "running" not in _state(main)
        )
    if phase == "Running" and mains:
        return any(map(_has_begun, (*inits, *mains)))
    return True


def _has_begun(container: Json) -> bool:
    """Return whether a container has started, even if it waits for a restart, or to be ready."""
    state = _state(container)
    waiting = state.get("waiting")
    return bool(
        (state and not waiting)
        or (waiting and waiting.get("reason") == NOT_READY)
        or container.get("started")
        or container.get("restartCount")
        or container.get("lastState")
    )


def _state(container: Json) -> Json:
    found: Json = container.get("state") or {}
    return found


def _workload_of(pod: Json) -> tuple[str, str]:
    annotations = pod["metadata"].get("annotations") or {}
    return pod["metadata"]["namespace"], annotations.get("kueue.x-k8s.io/workload", "")


def _is_over(workload: Json) -> bool:
    return _holds(workload, "Finished") or "deletionTimestamp" in workload["metadata"]


def _holds(workload: Json, kind: str) -> bool:
    return any(
        condition.get("type") == kind and condition.get("status") == "True"
        for condition in (workload.get("status") or {}).get("conditions") or ()
    )
