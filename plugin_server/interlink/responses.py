"""Status responses: from the status of a job to that of its pod, as interLink expects it.

interLink's virtual kubelet reads responses in ways that are not obvious; hence these rules:

- A response without containers makes a pod succeed, and one without one of its containers can
  crash the virtual kubelet: every container of the requested pod is listed, also those that
  interLink runs itself.
- When all containers have ended, the pod has ended and its status is never requested again: at
  least one stays ``running`` until the job has ended.
- Kubernetes rejects a terminated container that runs again (a job that its site has requeued): what
  was reported as terminated stays so.
- An init container that runs or waits holds back all others, and one that failed fails the pod: a
  sidecar, once it has begun, is listed without a state, and at the end with exit code 0.
- A terminated container that is new to it, behind one that is not terminated, crashes it: then the
  terminated ones come first.
- When init containers are new to it, it writes the exit code of the last terminated one into the
  first: before one that has failed is reported, all are reported as waiting.
- A running container counts as ready: one that is not ready yet is reported as waiting.
- The reason of a terminated container is overwritten: the cause is in its message.
"""

from __future__ import annotations

import time
from typing import Any, Optional

from plugin_server.interlink.requests import (
    NOT_REPORTED,
    ContainerSpec,
    ReportedStatus,
    RequestedPod,
)
from templates.job.records import RUNNING, TERMINATED, ContainerState, End
from templates.job.status import ENDED, INITIALIZING, NOT_READY, STARTED, JobStatus
from templates.pod.model import INIT, SIDECAR

State = dict[str, Any]
_PLAIN_ENDS = ("", "Completed", "Error")  # reasons that add nothing to the exit code


def preliminary_status(pod: RequestedPod, job: JobStatus) -> Optional[dict[str, Any]]:
    """Return a status with all containers waiting, to be sent before a failed init container.

    None if an init container was reported already, or none has failed.
    """
    if not pod.reported_by_name.keys().isdisjoint(spec.name for spec in pod.inits):
        return None
    if not _failed_init(pod, *_states_and_kinds(job)):
        return None
    inits, mains = (
        [_entry(spec, {"waiting": {"reason": INITIALIZING}}) for spec in specs]
        for specs in (pod.inits, pod.mains)
    )
    return _element(pod, job.job, inits, mains)


def pod_status(pod: RequestedPod, job: JobStatus) -> dict[str, Any]:
    """Return the status of a pod, after its preliminary one if it needs one."""
    states, kinds = _states_and_kinds(job)
    reported = pod.reported_by_name
    failed = _failed_init(pod, states, kinds)
    inits = _inits(pod, job, states, kinds, failed)
    mains = [_main(spec, job, states.get(spec.name), pod, reported) for spec in pod.mains]
    if job.phase == ENDED:
        _explain_not_started(mains, failed)
    else:
        _keep_one_running(mains, states, reported)
    return _element(pod, job.job, inits, mains)


def lost_status(pod: RequestedPod, job: str, message: str) -> dict[str, Any]:
    """Return the status of a pod whose job the site no longer has, or has rejected."""
    reported = pod.reported_by_name
    at = format_time(int(time.time() * 1000))
    mains = []
    for spec in pod.mains:
        previous = reported.get(spec.name)
        ended = {"exitCode": 1, "finishedAt": at, "message": message}
        if previous is not None and previous.state == "terminated":
            ended = _terminated_as_reported(previous)
        mains.append(_entry(spec, {"terminated": ended}))
    if all(main["state"]["terminated"]["exitCode"] == 0 for main in mains):
        mains[-1]["state"] = {"terminated": {"exitCode": 1, "finishedAt": at, "message": message}}
    inits = [
        _entry(spec, {"terminated": _terminated_as_reported(reported[spec.name])})
        for spec in pod.inits
        if reported.get(spec.name, NOT_REPORTED).state == "terminated"
    ]
    return _element(pod, job, inits, mains)


def format_time(at_ms: int) -> Optional[str]:
    """Return a time in Kubernetes' format; None if there is none."""
    if at_ms <= 0 or at_ms >= 253402300800000:  # the year 10000
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_ms // 1000))


def _states_and_kinds(job: JobStatus) -> tuple[dict[str, ContainerState], dict[str, str]]:
    """Return the state and the kind of each container by name.

    Once the job has ended, a container that is not terminated gets the end of the job: a site may
    contradict itself, and a pod ends only with all of its containers.
    """
    states = {entry.state.name: entry.state for entry in job.containers}
    kinds = {entry.state.name: entry.kind for entry in job.containers}
    if job.phase == ENDED:
        failed = any(s.end and s.end.exit_code for s in states.values() if kinds[s.name] == INIT)
        code = 0 if failed else job.exit_code
        end = End(code, 0, "", job.message, job.started_ms, job.finished_ms)
        states = {name: _terminated_with_job(state, end) for name, state in states.items()}
    return states, kinds


def _terminated_with_job(state: ContainerState, job_end: End) -> ContainerState:
    if state.state == TERMINATED and state.end is not None:
        return state
    return state._replace(state=TERMINATED, ready=False, end=state.end or job_end)


def _element(pod: RequestedPod, job: str, inits: list[State], mains: list[State]) -> dict[str, Any]:
    return {
        "name": pod.name,
        "UID": pod.uid,
        "namespace": pod.namespace,
        "JID": job,
        "containers": _in_safe_order(mains, pod),
        "initContainers": _in_safe_order(inits, pod),
    }


def _in_safe_order(entries: list[State], pod: RequestedPod) -> list[State]:
    """Return the pod's order; terminated ones first if one is new to the virtual kubelet."""
    reported = pod.reported_by_name
    if all(entry["name"] in reported for entry in entries):
        return entries
    return sorted(entries, key=lambda entry: "terminated" not in entry["state"])


# --- init containers ----------------------------------------------------------------------------


def _inits(
    pod: RequestedPod,
    job: JobStatus,
    states: dict[str, ContainerState],
    kinds: dict[str, str],
    failed: Optional[str],
) -> list[State]:
    begun = _begun_inits(pod, job, states)
    entries = []
    for spec in pod.inits:
        state = states.get(spec.name)
        if spec.sidecar or kinds.get(spec.name) == SIDECAR:
            entries.append(_sidecar(spec, job, state, spec.name in begun))
        elif state is None:
            entries.append(_keep_terminated(_local_init(spec, job, begun), pod))
        else:
            entries.append(_keep_terminated(_entry(spec, _plain_state(state), state), pod))
        if job.phase == ENDED and spec.name == failed:
            break  # the ones after it have not run
    return entries


def _failed_init(
    pod: RequestedPod, states: dict[str, ContainerState], kinds: dict[str, str]
) -> Optional[str]:
    for spec in pod.inits:
        state = states.get(spec.name)
        end = state.end if state is not None else None
        if end is not None and end.exit_code and kinds[spec.name] == INIT:
            return spec.name
    return None


def _begun_inits(pod: RequestedPod, job: JobStatus, states: dict[str, ContainerState]) -> set[str]:
    """Return the names of the init containers that the job has reached.

    Those before one that has begun have begun too, whatever their state is now.
    """
    if job.phase == ENDED:
        return {spec.name for spec in pod.inits}
    begun: set[str] = set()
    is_passed = any(_has_begun(states.get(spec.name)) for spec in pod.mains)
    for spec in reversed(pod.inits):
        state = states.get(spec.name)
        if is_passed or (state is not None and state.begun):
            begun.add(spec.name)
        is_passed = is_passed or _has_begun(state)
    return begun


def _has_begun(state: Optional[ContainerState]) -> bool:
    if state is None:
        return False
    return state.state in (RUNNING, TERMINATED) or state.restarts > 0 or state.last_end is not None


def _sidecar(
    spec: ContainerSpec, job: JobStatus, state: Optional[ContainerState], begun: bool
) -> State:
    """Return a sidecar: once it has begun, it must not hold back other containers."""
    state = state or ContainerState(spec.name)
    if job.phase == ENDED:
        end = state.end or End(0, 0, "", "", job.started_ms, job.finished_ms)
        message = _message_of(end)
        if end.exit_code:
            message = f"exit code {end.exit_code}" + (f": {message}" if message else "")
        ended = _terminated(end._replace(exit_code=0, signal=0))
        return _entry(spec, {"terminated": {**ended, "message": message}}, state)
    if begun:
        return {**_entry(spec, {}, state), "ready": state.ready, "started": True}
    return _entry(spec, _plain_state(state), state)


def _local_init(spec: ContainerSpec, job: JobStatus, begun: set[str]) -> State:
    """Return an init container that interLink runs itself, before or beside the job."""
    if job.phase == ENDED or spec.name in begun:
        return _entry(
            spec, {"terminated": {"exitCode": 0, "startedAt": format_time(job.started_ms)}}
        )
    return _entry(spec, {"waiting": {"reason": INITIALIZING}})


# --- containers ---------------------------------------------------------------------------------


def _main(
    spec: ContainerSpec,
    job: JobStatus,
    state: Optional[ContainerState],
    pod: RequestedPod,
    reported: dict[str, ReportedStatus],
) -> State:
    if state is None:
        return _local_main(spec, job)
    entry = _keep_terminated(_entry(spec, _plain_state(state), state), pod)
    previous = reported.get(spec.name)
    was_running = previous is not None and previous.state == "running"
    if "running" in entry["state"] and not state.ready and not was_running:
        message = f"running since {format_time(state.started_ms)}, and not ready yet"
        entry["state"] = {"waiting": {"reason": NOT_READY, "message": message}}
    return entry


def _local_main(spec: ContainerSpec, job: JobStatus) -> State:
    """Return a main container that interLink runs itself: it runs as long as the job."""
    if job.phase == ENDED:
        end = End(0, 0, "", "runs in the cluster", job.started_ms, job.finished_ms)
        return _entry(spec, {"terminated": _terminated(end)})
    if job.phase == STARTED:
        return {**_entry(spec, _running(job.started_ms)), "ready": True, "started": True}
    return _entry(spec, {"waiting": {"reason": INITIALIZING}})


def _keep_terminated(entry: State, pod: RequestedPod) -> State:
    """Keep a container terminated that was reported so and may not run again."""
    previous = pod.reported_by_name.get(entry["name"])
    if previous is None or previous.state != "terminated" or "terminated" in entry["state"]:
        return entry
    if not _may_run_again(pod, previous):
        entry["state"] = {"terminated": _terminated_as_reported(previous)}
        entry["ready"] = entry["started"] = False
    return entry


def _may_run_again(pod: RequestedPod, previous: ReportedStatus) -> bool:
    policy = pod.restart_policy
    return policy == "Always" or (policy == "OnFailure" and previous.exit_code != 0)


def _keep_one_running(
    mains: list[State], states: dict[str, ContainerState], reported: dict[str, ReportedStatus]
) -> None:
    """Report the last terminated container as running: the pod must not end before its job."""
    if not mains or any("terminated" not in main["state"] for main in mains):
        return

    def lateness(main: State) -> tuple[bool, int]:
        name = main["name"]
        previous = reported.get(name)
        state = states.get(name)
        end = state.end if state is not None else None
        is_unreported = previous is None or previous.state != "terminated"
        return is_unreported, end.finished_ms if end is not None else 0

    last = max(mains, key=lateness)
    state = states.get(last["name"])
    end = state.end if state is not None else None
    last["state"] = _running(end.started_ms if end is not None else 0)


def _explain_not_started(mains: list[State], failed_init: Optional[str]) -> None:
    """Explain in their messages why containers never ran."""
    for main in mains:
        ended = main["state"]["terminated"]
        if failed_init is not None and ended["exitCode"] == 0:
            ended["message"] = f"not started: init container {failed_init} failed"


# --- parts --------------------------------------------------------------------------------------


def _entry(spec: ContainerSpec, state: State, container: Optional[ContainerState] = None) -> State:
    entry: State = {
        "name": spec.name,
        "image": spec.image,
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": state,
    }
    if container is not None:
        running = container.state == RUNNING
        entry["ready"] = container.ready and running
        entry["restartCount"] = min(container.restarts, 2**31 - 1)
        entry["started"] = running and container.begun
        if container.last_end is not None:
            last = _terminated(container.last_end)
            last["reason"] = container.last_end.reason or (
                "Error" if last["exitCode"] else "Completed"
            )
            entry["lastState"] = {"terminated": last}
    return entry


def _plain_state(state: ContainerState) -> State:
    if state.state == RUNNING:
        return _running(state.started_ms)
    if state.end is not None and state.state == TERMINATED:
        return {"terminated": _terminated(state.end)}
    return {"waiting": {"reason": state.reason or INITIALIZING, "message": state.message}}


def _running(started_ms: int) -> State:
    return {"running": {"startedAt": format_time(started_ms)}}


def _terminated(end: End) -> State:
    ended: State = {
        "exitCode": end.exit_code,
        "startedAt": format_time(end.started_ms),
        "finishedAt": format_time(end.finished_ms),
        "message": _message_of(end),
    }
    if end.signal:
        ended["signal"] = end.signal
    return ended


def _message_of(end: End) -> str:
    """Return cause and message: interLink drops the reason."""
    cause = end.reason if end.reason not in _PLAIN_ENDS else ""
    if not cause and end.signal:
        cause = f"ended by signal {end.signal}"
    return ": ".join(part for part in (cause, end.message) if part)


def _terminated_as_reported(previous: ReportedStatus) -> State:
    return {
        "exitCode": previous.exit_code,
        "startedAt": previous.started_at or None,
        "finishedAt": previous.finished_at or None,
        "message": previous.message,
    }
