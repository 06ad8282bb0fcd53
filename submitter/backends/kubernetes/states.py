"""What a pod of the site's cluster says of its job: pure functions of its JSON.

A container's state becomes a record, as a job script would have written it. The number of a record
is the version of the pod that told it, so that every submitter of a pool writes the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any, NamedTuple

from submitter.backends.base import Observation
from templates.job.status import ENDED, QUEUED, STARTED

Json = Mapping[str, Any]
LONGEST_MESSAGE = 4096  # bytes
_OVER = ("Succeeded", "Failed")
# Conditions with which the cluster says why it ends a pod: its scheduler and its nodes; Kueue.
_ENDING = ("DisruptionTarget", "TerminationTarget")
_LOST = "ContainerStatusUnknown"  # a container that its node does not find any more


class Line(NamedTuple):
    """One record, before it has a time of its own."""

    stream: str
    number: int
    values: str  # KEY=VALUE ...


def observation(pod: Json) -> Observation:
    """What the cluster says of the whole job."""
    status = pod.get("status") or {}
    if status.get("phase") in _OVER:
        return Observation(ENDED, "", _words(status), exit_code(pod), finished_ms(pod))
    if status.get("startTime"):
        return Observation(STARTED)
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            gates = [gate["name"] for gate in (pod.get("spec") or {}).get("schedulingGates") or ()]
            words = [condition.get("message") or "", ", ".join(gates)]
            return Observation(
                QUEUED, condition.get("reason") or "", ": ".join(filter(None, words))
            )
    return Observation(QUEUED)


def deleted(pod: Json) -> Observation:
    """Of one that is gone, by whomever: its last words."""
    last = observation(pod)
    if last.phase == ENDED:
        return last
    words = _words(pod.get("status") or {}) or "the pod was deleted in the site's cluster"
    return Observation(ENDED, "", words, 137)


def run_of(pod: Json) -> int:
    """When the pod was made, in ms: it stands for the start of a script."""
    return time_ms(pod["metadata"].get("creationTimestamp"))


def lines(pod: Json) -> Iterator[Line]:
    """All that the pod says now."""
    status = pod.get("status") or {}
    if not status.get("startTime"):
        return
    node = (pod.get("spec") or {}).get("nodeName") or ""
    yield Line("job", 1, f"state=started node={node}")
    version = 2 * int(pod["metadata"]["resourceVersion"])
    over = status.get("phase") in _OVER
    cause = _words(status) if over else ""
    for container in containers(pod):
        last = (container.get("lastState") or {}).get("terminated")
        if last:
            yield Line(f"c.{container['name']}", version, _end(last, _restarts(container) - 1))
        yield Line(f"c.{container['name']}", version + 1, _state(container, cause))
    if over:
        yield Line("job", 2, f"state=finished exit={exit_code(pod)} message={_hex(cause)}")


def containers(pod: Json) -> Iterator[Json]:
    """What the pod says of each of its containers."""
    status = pod.get("status") or {}
    over = status.get("phase") in _OVER
    for key in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(key) or ():
            yield _settled(container) if over else container


def _settled(container: Json) -> Json:
    """One of a pod that is over: of some that are lost the node says at first that they wait."""
    last = (container.get("lastState") or {}).get("terminated") or {}
    if last.get("reason") == _LOST and (container.get("state") or {}).get("waiting"):
        return {**container, "state": {"terminated": last}}
    return container


def has_begun(container: Json) -> bool:
    """Whether it may have written something."""
    state = container.get("state") or {}
    return any((state.get(key) or {}).get("startedAt") for key in ("running", "terminated"))


def exit_code(pod: Json) -> int:
    """As the script would end: with the first one that is not 0."""
    for container in containers(pod):
        ended = (container.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            return int(ended["exitCode"])
    return 1 if (pod.get("status") or {}).get("phase") == "Failed" else 0


def finished_ms(pod: Json) -> int:
    """When the last container ended; 0 if none says so."""
    ends = [(c.get("state") or {}).get("terminated") or {} for c in containers(pod)]
    return max((time_ms(end.get("finishedAt")) for end in ends), default=0)


def time_ms(text: Any) -> int:
    """A time as Kubernetes writes it, in ms; 0 for none."""
    try:
        found = datetime.strptime(str(text)[:19], "%Y-%m-%dT%H:%M:%S")
    except ValueError:
        return 0
    return int(found.replace(tzinfo=timezone.utc).timestamp() * 1000)


def _state(container: Json, cause: str) -> str:
    """With why the pod was ended, if that is what ended the container: nothing else tells it."""
    state = container.get("state") or {}
    running, ended, waiting = (state.get(key) for key in ("running", "terminated", "waiting"))
    restarts = _restarts(container)
    if ended:
        return _end(ended, restarts, cause if ended.get("exitCode") else "")
    if running:
        begun, ready = (int(bool(container.get(key))) for key in ("started", "ready"))
        at = time_ms(running.get("startedAt"))
        return f"state=running restarts={restarts} started={at} begun={begun} ready={ready}"
    waiting = waiting or {}
    reason, said = waiting.get("reason") or "ContainerCreating", waiting.get("message") or ""
    return f"state=waiting reason={reason} message={_hex(said)} restarts={restarts}"


def _end(ended: Json, restarts: int, cause: str = "") -> str:
    said = ": ".join(filter(None, (cause, ended.get("message"))))
    begin, end = (time_ms(ended.get(key)) for key in ("startedAt", "finishedAt"))
    return (
        f"state=terminated exit={ended.get('exitCode', 1)} reason={ended.get('reason') or 'Error'} "
        f"started={begin} finished={end} restarts={restarts} "
        f"message={_hex(said)}"
    )


def _restarts(container: Json) -> int:
    return int(container.get("restartCount") or 0)


def _words(status: Json) -> str:
    """Why the pod itself has failed, or why the cluster ends it."""
    ending = [
        condition
        for condition in status.get("conditions") or ()
        if condition.get("type") in _ENDING and condition.get("status") == "True"
    ]
    for told in (status, *ending):
        words = ": ".join(str(told[key]) for key in ("reason", "message") if told.get(key))
        if words:
            return words
    return ""


def _hex(text: str) -> str:
    return text.encode(errors="replace")[:LONGEST_MESSAGE].hex()
