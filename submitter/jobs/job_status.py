"""The status of a job, from the journal, the batch system, and the records of its script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from templates.job.records import TERMINATED, ContainerState, End, JobState
from templates.job.status import (
    ACCEPTED,
    ENDED,
    IN_QUEUE,
    PHASES,
    QUEUED,
    STARTED,
    STARTING,
    SUBMITTING,
    ContainerStatus,
    JobIdentity,
    JobStatus,
    Version,
)
from templates.pod.model import INIT, MAIN, SIDECAR


class SchedulerView(NamedTuple):
    """The state of a job besides its records, above all as the batch system reports it."""

    phase: str = ACCEPTED
    native: str = ""
    reason: str = ""
    message: str = ""
    exit_code: int = 0  # of a job that ended without a record of its end
    at_ms: int = 0  # when it ended
    deleting: bool = False
    given_up_run: int = 0  # the run after which the batch system has requeued it
    starts_again: bool = False  # the batch system may start it again after terminating it


def is_over(view: SchedulerView, reported: JobState) -> bool:
    """Return whether nothing of a job will change any more.

    A job that the batch system has terminated may start again, unless that was our deletion.
    """
    if view.phase == ENDED:
        return True
    may_return = reported.terminated_by_signal and view.starts_again and not view.deleting
    return bool(reported.finished_ms) and not may_return


def status_of(job: JobIdentity, view: SchedulerView, reported: JobState, records: int) -> JobStatus:
    """Return the status of a job; once it has ended, every container has ended too."""
    phase = _phase(view, reported)
    run = reported.run
    if phase == QUEUED and run:  # after all records of that run, before the next one
        run, records, reported = run + 1, 0, JobState()
    finished_ms = reported.finished_ms or (view.at_ms if phase == ENDED else 0)
    exit_code = reported.exit_code if reported.finished_ms else view.exit_code
    message = reported.message or view.message
    states = _states(job, reported, _waiting(phase, view))
    if reported.terminated_by_signal and phase == ENDED and view.message:
        message = f"{view.message}: {reported.message}"
        states = [_with_cause(state, reported.message, message) for state in states]
    if phase == ENDED:
        job_end = End(exit_code, 0, "", message, reported.started_ms, finished_ms)
        states = _ended(states, job, job_end)
    images = {name: (kind, image) for name, kind, image in job.containers}
    return JobStatus(
        job=job.job,
        uid=job.uid,
        namespace=job.namespace,
        pod=job.pod,
        version=Version(run, PHASES.index(phase), records),
        phase=phase,
        native=view.native,
        node=reported.node,
        reason=view.reason,
        message=message,
        started_ms=reported.started_ms,
        finished_ms=finished_ms,
        exit_code=exit_code if phase == ENDED else 0,
        deleting=view.deleting,
        containers=tuple(ContainerStatus(*images[state.name], state) for state in states),
        origin=job.origin,
    )


def _phase(view: SchedulerView, reported: JobState) -> str:
    """Return the phase; the script's records precede the batch system, which may lag behind."""
    if is_over(view, reported):
        return ENDED
    if reported.run and not (view.phase == QUEUED and view.given_up_run == reported.run):
        return STARTED
    return view.phase


def _waiting(phase: str, view: SchedulerView) -> ContainerState:
    """Return the state of a container without any record."""
    if phase == ACCEPTED:
        return ContainerState("", reason=view.reason or SUBMITTING, message=view.message)
    if phase == QUEUED:
        return ContainerState("", reason=view.reason or IN_QUEUE, message=view.message)
    return ContainerState("", reason=STARTING)


def _states(job: JobIdentity, reported: JobState, waiting: ContainerState) -> list[ContainerState]:
    containers = reported.containers
    return [containers.get(name) or waiting._replace(name=name) for name, _, _ in job.containers]


def _with_cause(state: ContainerState, message: str, cause: str) -> ContainerState:
    """Put the cause into the message of a container that repeats the one of its job."""
    if state.end is None or message not in state.end.message:
        return state
    return state._replace(end=state.end._replace(message=state.end.message.replace(message, cause)))


def _ended(
    states: Sequence[ContainerState], job: JobIdentity, job_end: End
) -> list[ContainerState]:
    """Return the containers of a job that has ended: one without an end of its own gets the job's.

    A job that failed has at least one container that failed: it may have ended by its deadline
    while all of its containers, told to stop, ended with 0.
    """
    kinds = {name: kind for name, kind, _ in job.containers}
    init_failed = any(s.end and s.end.exit_code for s in states if kinds[s.name] == INIT)
    end_of_others = job_end._replace(exit_code=0) if init_failed else job_end
    ended = [s._replace(state=TERMINATED, ready=False, end=s.end or end_of_others) for s in states]
    exit_codes = [s.end.exit_code for s in ended if s.end and kinds[s.name] != SIDECAR]
    if job_end.exit_code and not any(exit_codes):
        main = next(i for i, s in enumerate(states) if kinds[s.name] == MAIN)
        ended[main] = _with_failure(states[main], job_end)
    return ended


def _with_failure(state: ContainerState, job_end: End) -> ContainerState:
    """Return the container with the exit code and the message of its failed job."""
    end = state.end or job_end
    message = ": ".join(part for part in (job_end.message, end.message) if part)
    return state._replace(
        state=TERMINATED,
        ready=False,
        end=end._replace(exit_code=job_end.exit_code, message=message),
    )
