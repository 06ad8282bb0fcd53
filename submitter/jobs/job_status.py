"""The status of a job, from its journal entry, the batch system, and the records of its script."""

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


class Outlook(NamedTuple):
    """What a submitter knows of a job besides its records."""

    phase: str = ACCEPTED
    native: str = ""
    reason: str = ""
    message: str = ""
    exit_code: int = 0  # of a job that ended without its script's last word
    at_ms: int = 0  # when that was
    deleting: bool = False
    given_up_run: int = 0  # the run after which the batch system has put it back into its queue
    starts_again: bool = False  # the batch system may start it again after it has told it to end


def is_over(outlook: Outlook, said: JobState) -> bool:
    """Whether nothing of a job will change any more.

    What a batch system has told to end it may start again, unless that was our own doing.
    """
    if outlook.phase == ENDED:
        return True
    may_return = said.terminated_by_signal and outlook.starts_again and not outlook.deleting
    return bool(said.finished_ms) and not may_return


def status_of(job: JobIdentity, outlook: Outlook, said: JobState, records: int) -> JobStatus:
    """The status of a job; once it has ended, every container has ended too."""
    phase = _phase(outlook, said)
    run = said.run
    if phase == QUEUED and run:  # later than all of that run, before the next one
        run, records, said = run + 1, 0, JobState()
    finished_ms = said.finished_ms or (outlook.at_ms if phase == ENDED else 0)
    exit_code = said.exit_code if said.finished_ms else outlook.exit_code
    message = said.message or outlook.message
    states = _states(job, said, _waiting(phase, outlook))
    if said.terminated_by_signal and phase == ENDED and outlook.message:
        message = f"{outlook.message}: {said.message}"
        states = [_with_cause(state, said.message, message) for state in states]
    if phase == ENDED:
        by_job = End(exit_code, 0, "", message, said.started_ms, finished_ms)
        states = _ended(states, job, by_job)
    images = {name: (kind, image) for name, kind, image in job.containers}
    return JobStatus(
        job=job.job,
        uid=job.uid,
        namespace=job.namespace,
        pod=job.pod,
        version=Version(run, PHASES.index(phase), records),
        phase=phase,
        native=outlook.native,
        node=said.node,
        reason=outlook.reason,
        message=message,
        started_ms=said.started_ms,
        finished_ms=finished_ms,
        exit_code=exit_code if phase == ENDED else 0,
        deleting=outlook.deleting,
        containers=tuple(ContainerStatus(*images[state.name], state) for state in states),
        origin=job.origin,
    )


def _phase(outlook: Outlook, said: JobState) -> str:
    """The script's own word counts more than the batch system's, which may lag behind."""
    if is_over(outlook, said):
        return ENDED
    if said.run and not (outlook.phase == QUEUED and outlook.given_up_run == said.run):
        return STARTED
    return outlook.phase


def _waiting(phase: str, outlook: Outlook) -> ContainerState:
    """How a container waits that the script has not spoken of."""
    if phase == ACCEPTED:
        return ContainerState("", reason=outlook.reason or SUBMITTING, message=outlook.message)
    if phase == QUEUED:
        return ContainerState("", reason=outlook.reason or IN_QUEUE, message=outlook.message)
    return ContainerState("", reason=STARTING)


def _states(job: JobIdentity, said: JobState, waiting: ContainerState) -> list[ContainerState]:
    known = said.containers
    return [known.get(name) or waiting._replace(name=name) for name, _, _ in job.containers]


def _with_cause(state: ContainerState, words: str, cause: str) -> ContainerState:
    """A container that says how its job ended says why, too."""
    if state.end is None or words not in state.end.message:
        return state
    return state._replace(end=state.end._replace(message=state.end.message.replace(words, cause)))


def _ended(states: Sequence[ContainerState], job: JobIdentity, by_job: End) -> list[ContainerState]:
    """The containers of a job that is over: what has no end of its own gets the job's.

    A job that failed has at least one container that failed: it may have ended by its deadline
    while all of its containers, told to stop, ended with 0.
    """
    kinds = {name: kind for name, kind, _ in job.containers}
    init_failed = any(s.end and s.end.exit_code for s in states if kinds[s.name] == INIT)
    left = by_job._replace(exit_code=0) if init_failed else by_job
    ended = [s._replace(state=TERMINATED, ready=False, end=s.end or left) for s in states]
    codes = [s.end.exit_code for s in ended if s.end and kinds[s.name] != SIDECAR]
    if by_job.exit_code and not any(codes):
        place = next(i for i, s in enumerate(states) if kinds[s.name] == MAIN)
        ended[place] = _blamed(states[place], by_job)
    return ended


def _blamed(state: ContainerState, by_job: End) -> ContainerState:
    """A container that ended well, in a job that did not."""
    end = state.end or by_job
    words = ": ".join(part for part in (by_job.message, end.message) if part)
    return state._replace(
        state=TERMINATED,
        ready=False,
        end=end._replace(exit_code=by_job.exit_code, message=words),
    )
