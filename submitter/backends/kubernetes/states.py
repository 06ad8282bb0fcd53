"""Observations and records of a job from its pod in the site's cluster: pure functions of JSON.

A container's state becomes a record, as a job script would have written it. The number of a record
follows from the pod's version, so that every submitter of a pool writes the same.
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
# Conditions with the reason why the cluster ends a pod: by its scheduler and nodes, and by Kueue.
_ENDING = ("DisruptionTarget", "TerminationTarget")
_LOST = "ContainerStatusUnknown"  # the node does not find the container any more


class RecordLine(NamedTuple):
    """One record, before it gets its timestamp."""

    stream: str
    number: int
    values: str  # KEY=VALUE ...


def observe(pod: Json) -> Observation:
    """Return the observation of the whole job."""
    status = pod.get("status") or {}
    if status.get("phase") in _OVER:
        code, at_ms = read_exit_code(pod), read_finished_ms(pod)
        return Observation(ENDED, "", _read_message(status), code, at_ms)
    if status.get("startTime"):
        return Observation(STARTED)
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            gates = [gate["name"] for gate in (pod.get("spec") or {}).get("schedulingGates") or ()]
            parts = [condition.get("message") or "", ", ".join(gates)]
            return Observation(
                QUEUED, condition.get("reason") or "", ": ".join(filter(None, parts))
            )
    return Observation(QUEUED)


def observe_deleted(pod: Json) -> Observation:
    """Return the observation of a job whose pod was deleted, with its last state."""
    last = observe(pod)
    if last.phase == ENDED:
        return last
    message = _read_message(pod.get("status") or {}) or "the pod was deleted in the site's cluster"
    return Observation(ENDED, "", message, 137)


def read_run(pod: Json) -> int:
    """Return when the pod was created, in ms: it stands for the start of a script."""
    return parse_time_ms(pod["metadata"].get("creationTimestamp"))


def read_records(pod: Json) -> Iterator[RecordLine]:
    """Yield the records that the pod's status stands for."""
    status = pod.get("status") or {}
    if not status.get("startTime"):
        return
    node = (pod.get("spec") or {}).get("nodeName") or ""
    yield RecordLine("job", 1, f"state=started node={node}")
    version = 2 * int(pod["metadata"]["resourceVersion"])
    over = status.get("phase") in _OVER
    cause = _read_message(status) if over else ""
    for container in read_containers(pod):
        stream = f"c.{container['name']}"
        last = (container.get("lastState") or {}).get("terminated")
        if last:
            yield RecordLine(stream, version, _format_end(last, _read_restarts(container) - 1))
        yield RecordLine(stream, version + 1, _format_state(container, cause))
    if over:
        code = read_exit_code(pod)
        yield RecordLine("job", 2, f"state=finished exit={code} message={_to_hex(cause)}")


def read_containers(pod: Json) -> Iterator[Json]:
    """Yield the status of each container."""
    status = pod.get("status") or {}
    over = status.get("phase") in _OVER
    for key in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(key) or ():
            yield _replace_lost_state(container) if over else container


def _replace_lost_state(container: Json) -> Json:
    """Return the end of a container that is lost: nodes report some as waiting at first."""
    last = (container.get("lastState") or {}).get("terminated") or {}
    if last.get("reason") == _LOST and (container.get("state") or {}).get("waiting"):
        return {**container, "state": {"terminated": last}}
    return container


def has_begun(container: Json) -> bool:
    """Return whether the container may have written a log."""
    state = container.get("state") or {}
    return any((state.get(key) or {}).get("startedAt") for key in ("running", "terminated"))


def read_exit_code(pod: Json) -> int:
    """Return the exit code of a script in its place: the first one that is not 0."""
    for container in read_containers(pod):
        ended = (container.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            return int(ended["exitCode"])
    return 1 if (pod.get("status") or {}).get("phase") == "Failed" else 0


def read_finished_ms(pod: Json) -> int:
    """Return when the last container ended; 0 if that is not known."""
    ends = [(c.get("state") or {}).get("terminated") or {} for c in read_containers(pod)]
    return max((parse_time_ms(end.get("finishedAt")) for end in ends), default=0)


def parse_time_ms(text: Any) -> int:
    """Return a timestamp of Kubernetes in ms; 0 for none."""
    try:
        found = datetime.strptime(str(text)[:19], "%Y-%m-%dT%H:%M:%S")
    except ValueError:
        return 0
    return int(found.replace(tzinfo=timezone.utc).timestamp() * 1000)


def _format_state(container: Json, cause: str) -> str:
    """Format a state, with the pod's reason if that ended the container: no other record has it."""
    state = container.get("state") or {}
    running, ended, waiting = (state.get(key) for key in ("running", "terminated", "waiting"))
    restarts = _read_restarts(container)
    if ended:
        return _format_end(ended, restarts, cause if ended.get("exitCode") else "")
    if running:
        begun, ready = (int(bool(container.get(key))) for key in ("started", "ready"))
        at = parse_time_ms(running.get("startedAt"))
        return f"state=running restarts={restarts} started={at} begun={begun} ready={ready}"
    waiting = waiting or {}
    reason, message = waiting.get("reason") or "ContainerCreating", waiting.get("message") or ""
    return f"state=waiting reason={reason} message={_to_hex(message)} restarts={restarts}"


def _format_end(ended: Json, restarts: int, cause: str = "") -> str:
    message = ": ".join(filter(None, (cause, ended.get("message"))))
    begin, end = (parse_time_ms(ended.get(key)) for key in ("startedAt", "finishedAt"))
    return (
        f"state=terminated exit={ended.get('exitCode', 1)} reason={ended.get('reason') or 'Error'} "
        f"started={begin} finished={end} restarts={restarts} "
        f"message={_to_hex(message)}"
    )


def _read_restarts(container: Json) -> int:
    return int(container.get("restartCount") or 0)


def _read_message(status: Json) -> str:
    """Return why the pod itself has failed, or why the cluster ends it; empty if neither."""
    ending = [
        condition
        for condition in status.get("conditions") or ()
        if condition.get("type") in _ENDING and condition.get("status") == "True"
    ]
    for source in (status, *ending):
        message = ": ".join(str(source[key]) for key in ("reason", "message") if source.get(key))
        if message:
            return message
    return ""


def _to_hex(text: str) -> str:
    return text.encode(errors="replace")[:LONGEST_MESSAGE].hex()
