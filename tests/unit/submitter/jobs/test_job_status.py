"""What becomes of a job's status: from what was journaled, what is said of it, what it recorded."""

from __future__ import annotations

from itertools import product

import pytest

from submitter.jobs.job_status import SchedulerView, status_of
from templates.job.records import RUNNING, TERMINATED, WAITING, ContainerState, End, JobState
from templates.job.status import (
    ACCEPTED,
    ENDED,
    PHASES,
    QUEUED,
    STARTED,
    JobIdentity,
    JobStatus,
    Version,
    accepted_status,
)

JOB = JobIdentity(
    "hello-0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0",
    "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0",
    "ns",
    "hello",
    (("setup", "init", "i"), ("side", "sidecar", "s"), ("main", "main", "m"), ("two", "main", "t")),
)
OK = End(0, 0, "Completed", "", 10, 20)
BAD = End(3, 0, "Error", "no", 10, 20)


def ended(name: str, end: End) -> tuple[str, ContainerState]:
    return name, ContainerState(name, TERMINATED, end=end)


def running(name: str) -> tuple[str, ContainerState]:
    return name, ContainerState(name, RUNNING, started_ms=10, begun=True, ready=True)


def codes(status: JobStatus) -> dict[str, int]:
    return {c.state.name: c.state.end.exit_code for c in status.containers if c.state.end}


def reasons(status: JobStatus) -> set[str]:
    return {c.state.reason for c in status.containers}


def test_a_journaled_job_waits() -> None:
    status = status_of(JOB, SchedulerView(), JobState(), 0)
    assert (status.phase, status.version) == (ACCEPTED, Version(0, 0, 0))
    assert reasons(status) == {"Submitting"}
    assert [c.kind for c in status.containers] == ["init", "sidecar", "main", "main"]
    assert [c.image for c in status.containers] == ["i", "s", "m", "t"]


def test_a_job_that_was_just_taken_waits_like_any_other() -> None:
    image = "i" * 5000
    odd = JOB._replace(origin="here", containers=((("main", "main", image)),))
    for job in (JOB, JOB, odd):
        assert accepted_status(job) == status_of(job, SchedulerView(), JobState(), 0)
    assert accepted_status(JOB).containers is accepted_status(JOB._replace(uid="other")).containers
    assert (
        accepted_status(odd).containers is not accepted_status(odd).containers
    )  # a long one is not kept


def test_why_a_job_waits_is_told() -> None:
    said = SchedulerView(ACCEPTED, reason="NoRoom", message="full")
    assert reasons(status_of(JOB, said, JobState(), 0)) == {"NoRoom"}
    queued = status_of(JOB, SchedulerView(QUEUED, "7"), JobState(), 0)
    assert (reasons(queued), queued.native) == ({"Queued"}, "7")
    why = status_of(JOB, SchedulerView(QUEUED, "7", "Priority", "later"), JobState(), 0)
    assert {(c.state.reason, c.state.message) for c in why.containers} == {("Priority", "later")}


def test_a_started_job_creates_what_it_has_not_spoken_of() -> None:
    said = JobState(run=5, node="n", started_ms=9, containers=dict([running("main")]))
    status = status_of(JOB, SchedulerView(STARTED, "7"), said, 4)
    assert (status.phase, status.version, status.node) == (STARTED, Version(5, 2, 4), "n")
    states = {c.state.name: c.state for c in status.containers}
    assert states["main"].state == RUNNING
    assert (states["two"].state, states["two"].reason) == (WAITING, "ContainerCreating")


def test_the_script_knows_before_the_batch_system_that_it_runs() -> None:
    assert status_of(JOB, SchedulerView(ACCEPTED), JobState(run=5), 1).phase == STARTED


def test_a_job_that_was_put_back_into_the_queue_begins_anew() -> None:
    said = JobState(run=5, node="n", started_ms=9, containers=dict([running("main")]))
    before = status_of(JOB, SchedulerView(STARTED), said, 4)
    again = status_of(JOB, SchedulerView(QUEUED, reason="Requeued", given_up_run=5), said, 4)
    assert (again.phase, again.node, again.started_ms) == (QUEUED, "", 0)
    assert reasons(again) == {"Requeued"}
    after = status_of(JOB, SchedulerView(STARTED), JobState(run=9), 1)
    assert before.version < again.version < after.version


def test_a_batch_system_that_lags_behind_does_not_put_a_job_back() -> None:
    assert status_of(JOB, SchedulerView(QUEUED), JobState(run=5), 1).phase == STARTED
    assert (
        status_of(JOB, SchedulerView(QUEUED, given_up_run=5), JobState(run=9), 1).phase == STARTED
    )


def test_a_job_that_ended_well() -> None:
    containers = dict(ended(name, OK) for name in ("setup", "side", "main", "two"))
    said = JobState(run=5, started_ms=9, finished_ms=30, exit_code=0, containers=containers)
    status = status_of(JOB, SchedulerView(STARTED), said, 9)
    assert (status.phase, status.exit_code, status.finished_ms) == (ENDED, 0, 30)
    assert set(codes(status).values()) == {0}


def test_the_scripts_last_word_counts_more_than_the_batch_systems() -> None:
    said = JobState(run=5, finished_ms=30, exit_code=3)
    status = status_of(
        JOB, SchedulerView(ENDED, exit_code=0, at_ms=99, message="COMPLETED"), said, 9
    )
    assert (status.exit_code, status.finished_ms) == (3, 30)


def test_a_job_that_vanished_takes_its_containers_along() -> None:
    said = JobState(run=5, started_ms=9, containers=dict([ended("setup", OK), running("main")]))
    gone = SchedulerView(ENDED, "7", exit_code=137, at_ms=50, message="node failed")
    status = status_of(JOB, gone, said, 4)
    assert codes(status) == {"setup": 0, "side": 137, "main": 137, "two": 137}
    ends = [c.state.end for c in status.containers if c.state.end and c.state.end.exit_code]
    assert {(end.message, end.finished_ms) for end in ends} == {("node failed", 50)}
    assert not any(c.state.ready for c in status.containers)


def test_after_a_failed_init_container_the_others_are_not_blamed() -> None:
    said = JobState(run=5, finished_ms=30, exit_code=3, containers=dict([ended("setup", BAD)]))
    assert codes(status_of(JOB, SchedulerView(), said, 4)) == {
        "setup": 3,
        "side": 0,
        "main": 0,
        "two": 0,
    }


def test_a_failed_job_whose_containers_all_ended_well_blames_the_first_main_one() -> None:
    containers = dict(ended(name, OK) for name in ("setup", "side", "main", "two"))
    said = JobState(
        run=5, finished_ms=30, exit_code=143, message="its deadline is over", containers=containers
    )
    status = status_of(JOB, SchedulerView(), said, 9)
    assert codes(status) == {"setup": 0, "side": 0, "main": 143, "two": 0}
    blamed = status.containers[2].state
    assert blamed.end is not None
    assert blamed.end.message == "its deadline is over"


def test_a_failed_sidecar_fails_nothing() -> None:
    containers = dict([ended("setup", OK), ended("side", BAD), ended("main", OK), ended("two", OK)])
    said = JobState(run=5, finished_ms=30, exit_code=0, containers=containers)
    assert codes(status_of(JOB, SchedulerView(), said, 9)) == {
        "setup": 0,
        "side": 3,
        "main": 0,
        "two": 0,
    }


def test_the_end_of_the_first_phase_is_told_for_a_job_that_never_ran() -> None:
    refused = SchedulerView(ENDED, exit_code=1, at_ms=7, message="no such partition")
    status = status_of(JOB, refused, JobState(), 0)
    assert (status.phase, status.exit_code, status.started_ms) == (ENDED, 1, 0)
    assert codes(status) == {"setup": 1, "side": 1, "main": 1, "two": 1}


EVERY_SAID = [
    JobState(),
    JobState(run=5),
    JobState(run=5, started_ms=9, containers=dict([running("main")])),
    JobState(run=5, finished_ms=30),
    JobState(run=5, finished_ms=30, exit_code=1),
    JobState(run=5, finished_ms=30, exit_code=1, containers=dict([ended("setup", BAD)])),
    JobState(run=5, finished_ms=30, exit_code=1, containers=dict([ended("main", OK)])),
]


@pytest.mark.parametrize(("phase", "code"), list(product(PHASES, (0, 1))))
@pytest.mark.parametrize("said", EVERY_SAID)
def test_what_always_holds(phase: str, code: int, said: JobState) -> None:
    status = status_of(JOB, SchedulerView(phase, exit_code=code, at_ms=50), said, 3)
    assert [c.state.name for c in status.containers] == ["setup", "side", "main", "two"]
    over = status.phase == ENDED
    assert all(
        (c.state.state == TERMINATED) == (c.state.end is not None) for c in status.containers
    )
    assert not over or all(c.state.end for c in status.containers)
    assert over or status.exit_code == 0
    # A failed job has a failed container, and a job with a failed main container is a failed one.
    found = codes(status)
    assert not (over and status.exit_code) or any(found.values())
