"""From what a site says of a job to what interLink takes for the status of its pod.

interLink's virtual kubelet believes what it is told in ways that are not obvious; what the rules
below are for:

- An answer without containers makes a pod succeed, and one that leaves a container out can crash
  the virtual kubelet: every container of the pod that was asked for is listed, also those that
  interLink runs itself.
- When all containers have ended, the pod is over for good and never asked for again: at least one
  stays ``running`` until the job itself is over.
- Kubernetes refuses that an ended container lives again (a job that its site runs anew): what was
  shown as ended stays so.
- An init container that runs or waits holds back all others, and one that failed fails the pod: a
  sidecar, once it has begun, is listed without a state, and at the end with exit code 0.
- A container that it sees for the first time, ended, behind one that has not ended, crashes it:
  then the ended ones come first.
- Init containers that it sees for the first time get the exit code of the last ended one written
  into the first: before one that has failed is told, all of them are shown as waiting.
- A running container counts as ready: one that has yet to become ready is shown as waiting.
- The reason of an ended container is overwritten: the cause stands in its message.
"""

from __future__ import annotations

import time
from typing import Any, Optional

from plugin_server.interlink.requests import NOTHING, Asked, Listed, Shown
from templates.job.records import RUNNING, TERMINATED, ContainerState, End
from templates.job.status import ENDED, INITIALIZING, NOT_READY, STARTED, JobStatus
from templates.pod.model import INIT, SIDECAR

State = dict[str, Any]
_PLAIN_ENDS = ("", "Completed", "Error")  # reasons that say no more than the exit code


def introduction(asked: Asked, job: JobStatus) -> Optional[dict[str, Any]]:
    """What comes before that of a failed init container when none has been shown yet, else None.

    All containers, waiting; the next answer says what has become of them.
    """
    if not asked.shown_of.keys().isdisjoint(listed.name for listed in asked.inits):
        return None
    if not _failed_init(asked, *_states_and_kinds(job)):
        return None
    inits, mains = (
        [_entry(listed, {"waiting": {"reason": INITIALIZING}}) for listed in every]
        for every in (asked.inits, asked.mains)
    )
    return _element(asked, job.job, inits, mains)


def pod_status(asked: Asked, job: JobStatus) -> dict[str, Any]:
    """The element of the answer for one pod, when it needs no introduction."""
    known, kinds = _states_and_kinds(job)
    shown = asked.shown_of
    failed = _failed_init(asked, known, kinds)
    inits = _inits(asked, job, known, kinds, failed)
    mains = [_main(listed, job, known.get(listed.name), asked, shown) for listed in asked.mains]
    if job.phase == ENDED:
        _explain(mains, failed)
    else:
        _keep_one_running(mains, known, shown)
    return _element(asked, job.job, inits, mains)


def lost_status(asked: Asked, job: str, words: str) -> dict[str, Any]:
    """The element for a pod whose job the site no longer has."""
    shown = asked.shown_of
    at = stamp(int(time.time() * 1000))
    mains = []
    for listed in asked.mains:
        before = shown.get(listed.name)
        ended = {"exitCode": 1, "finishedAt": at, "message": words}
        if before is not None and before.state == "terminated":
            ended = _as_shown(before)
        mains.append(_entry(listed, {"terminated": ended}))
    if all(main["state"]["terminated"]["exitCode"] == 0 for main in mains):
        mains[-1]["state"] = {"terminated": {"exitCode": 1, "finishedAt": at, "message": words}}
    inits = [
        _entry(listed, {"terminated": _as_shown(shown[listed.name])})
        for listed in asked.inits
        if shown.get(listed.name, NOTHING).state == "terminated"
    ]
    return _element(asked, job, inits, mains)


def stamp(at_ms: int) -> Optional[str]:
    """A time as Kubernetes reads it; None if there is none."""
    if at_ms <= 0 or at_ms >= 253402300800000:  # the year 10000
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_ms // 1000))


def _states_and_kinds(job: JobStatus) -> tuple[dict[str, ContainerState], dict[str, str]]:
    """Return the state and the kind of each container by its name.

    Once the job has ended, a container that has no end of its own gets the job's: a site may not
    say so, and the rules above hold for ended containers only.
    """
    known = {entry.state.name: entry.state for entry in job.containers}
    kinds = {entry.state.name: entry.kind for entry in job.containers}
    if job.phase == ENDED:
        failed = any(s.end and s.end.exit_code for s in known.values() if kinds[s.name] == INIT)
        code = 0 if failed else job.exit_code
        end = End(code, 0, "", job.message, job.started_ms, job.finished_ms)
        known = {name: _ended(state, end) for name, state in known.items()}
    return known, kinds


def _ended(state: ContainerState, job_end: End) -> ContainerState:
    if state.state == TERMINATED and state.end is not None:
        return state
    return state._replace(state=TERMINATED, ready=False, end=state.end or job_end)


def _element(asked: Asked, job: str, inits: list[State], mains: list[State]) -> dict[str, Any]:
    return {
        "name": asked.name,
        "UID": asked.uid,
        "namespace": asked.namespace,
        "JID": job,
        "containers": _in_safe_order(mains, asked),
        "initContainers": _in_safe_order(inits, asked),
    }


def _in_safe_order(entries: list[State], asked: Asked) -> list[State]:
    """The order of the pod; but as long as one is new to the virtual kubelet, ended ones first."""
    shown = asked.shown_of
    if all(entry["name"] in shown for entry in entries):
        return entries
    return sorted(entries, key=lambda entry: "terminated" not in entry["state"])


# --- init containers ----------------------------------------------------------------------------


def _inits(
    asked: Asked,
    job: JobStatus,
    known: dict[str, ContainerState],
    kinds: dict[str, str],
    failed: Optional[str],
) -> list[State]:
    begun = _begun_inits(asked, job, known)
    entries = []
    for listed in asked.inits:
        state = known.get(listed.name)
        if listed.sidecar or kinds.get(listed.name) == SIDECAR:
            entries.append(_sidecar(listed, job, state, listed.name in begun))
        elif state is None:
            entries.append(_held(_local_init(listed, job, begun), asked))
        else:
            entries.append(_held(_entry(listed, _plain_state(state), state), asked))
        if job.phase == ENDED and listed.name == failed:
            break  # those behind it have not run
    return entries


def _failed_init(
    asked: Asked, known: dict[str, ContainerState], kinds: dict[str, str]
) -> Optional[str]:
    for listed in asked.inits:
        state = known.get(listed.name)
        end = state.end if state is not None else None
        if end is not None and end.exit_code and kinds[listed.name] == INIT:
            return listed.name
    return None


def _begun_inits(asked: Asked, job: JobStatus, known: dict[str, ContainerState]) -> set[str]:
    """The names of the init containers that the job has come past, or at least to.

    Those in front of one that has done something have begun, whatever they do now.
    """
    if job.phase == ENDED:
        return {listed.name for listed in asked.inits}
    begun: set[str] = set()
    passed = any(_has_begun(known.get(listed.name)) for listed in asked.mains)
    for listed in reversed(asked.inits):
        state = known.get(listed.name)
        if passed or (state is not None and state.begun):
            begun.add(listed.name)
        passed = passed or _has_begun(state)
    return begun


def _has_begun(state: Optional[ContainerState]) -> bool:
    if state is None:
        return False
    return state.state in (RUNNING, TERMINATED) or state.restarts > 0 or state.last_end is not None


def _sidecar(listed: Listed, job: JobStatus, state: Optional[ContainerState], begun: bool) -> State:
    """One that has begun must hold nobody back, whatever becomes of it."""
    state = state or ContainerState(listed.name)
    if job.phase == ENDED:
        end = state.end or End(0, 0, "", "", job.started_ms, job.finished_ms)
        words = _words(end)
        if end.exit_code:
            words = f"exit code {end.exit_code}" + (f": {words}" if words else "")
        ended = _terminated(end._replace(exit_code=0, signal=0))
        return _entry(listed, {"terminated": {**ended, "message": words}}, state)
    if begun:
        return {**_entry(listed, {}, state), "ready": state.ready, "started": True}
    return _entry(listed, _plain_state(state), state)


def _local_init(listed: Listed, job: JobStatus, begun: set[str]) -> State:
    """One that interLink runs itself, before or beside the job."""
    if job.phase == ENDED or listed.name in begun:
        return _entry(listed, {"terminated": {"exitCode": 0, "startedAt": stamp(job.started_ms)}})
    return _entry(listed, {"waiting": {"reason": INITIALIZING}})


# --- containers ---------------------------------------------------------------------------------


def _main(
    listed: Listed,
    job: JobStatus,
    state: Optional[ContainerState],
    asked: Asked,
    shown: dict[str, Shown],
) -> State:
    if state is None:
        return _mirrored(listed, job)
    entry = _held(_entry(listed, _plain_state(state), state), asked)
    before = shown.get(listed.name)
    seen_running = before is not None and before.state == "running"
    if "running" in entry["state"] and not state.ready and not seen_running:
        words = f"running since {stamp(state.started_ms)}, and not ready yet"
        entry["state"] = {"waiting": {"reason": NOT_READY, "message": words}}
    return entry


def _mirrored(listed: Listed, job: JobStatus) -> State:
    """One that interLink runs itself: it lives as long as the job does."""
    if job.phase == ENDED:
        end = End(0, 0, "", "runs in the cluster", job.started_ms, job.finished_ms)
        return _entry(listed, {"terminated": _terminated(end)})
    if job.phase == STARTED:
        return {**_entry(listed, _running(job.started_ms)), "ready": True, "started": True}
    return _entry(listed, {"waiting": {"reason": INITIALIZING}})


def _held(entry: State, asked: Asked) -> State:
    """The entry; but what was shown as ended, and may not live again, stays so."""
    before = asked.shown_of.get(entry["name"])
    if before is None or before.state != "terminated" or "terminated" in entry["state"]:
        return entry
    if not _may_live_again(asked, before):
        entry["state"] = {"terminated": _as_shown(before)}
        entry["ready"] = entry["started"] = False
    return entry


def _may_live_again(asked: Asked, before: Shown) -> bool:
    policy = asked.restart_policy
    return policy == "Always" or (policy == "OnFailure" and before.exit_code != 0)


def _keep_one_running(
    mains: list[State], known: dict[str, ContainerState], shown: dict[str, Shown]
) -> None:
    """The pod is not over before its job is: the last one to end still runs, as it were."""
    if not mains or any("terminated" not in main["state"] for main in mains):
        return

    def lateness(main: State) -> tuple[bool, int]:
        name = main["name"]
        before = shown.get(name)
        state = known.get(name)
        end = state.end if state is not None else None
        hidden = before is None or before.state != "terminated"
        return hidden, end.finished_ms if end is not None else 0

    last = max(mains, key=lateness)
    state = known.get(last["name"])
    end = state.end if state is not None else None
    last["state"] = _running(end.started_ms if end is not None else 0)


def _explain(mains: list[State], failed_init: Optional[str]) -> None:
    """Say of containers that never ran why that is so."""
    for main in mains:
        ended = main["state"]["terminated"]
        if failed_init is not None and ended["exitCode"] == 0:
            ended["message"] = f"not started: init container {failed_init} failed"


# --- parts --------------------------------------------------------------------------------------


def _entry(listed: Listed, state: State, of: Optional[ContainerState] = None) -> State:
    entry: State = {
        "name": listed.name,
        "image": listed.image,
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": state,
    }
    if of is not None:
        running = of.state == RUNNING
        entry["ready"] = of.ready and running
        entry["restartCount"] = min(of.restarts, 2**31 - 1)
        entry["started"] = running and of.begun
        if of.last_end is not None:
            last = _terminated(of.last_end)
            last["reason"] = of.last_end.reason or ("Error" if last["exitCode"] else "Completed")
            entry["lastState"] = {"terminated": last}
    return entry


def _plain_state(state: ContainerState) -> State:
    if state.state == RUNNING:
        return _running(state.started_ms)
    if state.end is not None and state.state == TERMINATED:
        return {"terminated": _terminated(state.end)}
    return {"waiting": {"reason": state.reason or INITIALIZING, "message": state.message}}


def _running(started_ms: int) -> State:
    return {"running": {"startedAt": stamp(started_ms)}}


def _terminated(end: End) -> State:
    ended: State = {
        "exitCode": end.exit_code,
        "startedAt": stamp(end.started_ms),
        "finishedAt": stamp(end.finished_ms),
        "message": _words(end),
    }
    if end.signal:
        ended["signal"] = end.signal
    return ended


def _words(end: End) -> str:
    """The cause with the message, because the reason is lost on the way."""
    cause = end.reason if end.reason not in _PLAIN_ENDS else ""
    if not cause and end.signal:
        cause = f"ended by signal {end.signal}"
    return ": ".join(part for part in (cause, end.message) if part)


def _as_shown(before: Shown) -> State:
    return {
        "exitCode": before.exit_code,
        "startedAt": before.started_at or None,
        "finishedAt": before.finished_at or None,
        "message": before.message,
    }
