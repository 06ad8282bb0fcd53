"""Handing over jobs, with batch systems that crash, lie and hesitate: never twice."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from submitter.common.errors import BackendUnavailable, NoRoom, SubmitRefused, SubmitUnclear
from submitter.jobs import submit as submission
from submitter.jobs.context import PoolContext
from submitter.jobs.submit import Attempt, Submission
from templates.common import names
from templates.job.model import File, Job
from templates.protocol.messages import Delete
from tests.unit.submitter.fakes import moody, site_of
from tests.unit.submitter.rig import job_of, placed


@pytest.fixture
def site(tmp_path: Path) -> PoolContext:
    return site_of(tmp_path / "pool")


@pytest.fixture
def job(site: PoolContext) -> Job:
    made = job_of()
    placed(site.journal, made)
    return made


def attempt(site: PoolContext, job: Job) -> Attempt:
    return Submission(site.journal, site.backend).attempt(job)


def test_a_job_is_submitted_once(site: PoolContext, job: Job) -> None:
    first, second = attempt(site, job), attempt(site, job)
    assert first == second == Attempt(job.name, submission.SUBMITTED, native="native-1")
    assert moody(site).taken == [job.name]


def test_a_job_that_was_taken_without_an_answer_is_adopted(site: PoolContext, job: Job) -> None:
    moody(site).after_submit = SubmitUnclear("timed out")
    assert attempt(site, job).outcome == submission.UNCLEAR
    assert attempt(site, job) == Attempt(job.name, submission.SUBMITTED, native="found")
    assert moody(site).taken == [job.name]


def test_a_crash_after_the_batch_system_took_it(site: PoolContext, job: Job) -> None:
    moody(site).after_submit = KeyboardInterrupt()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        attempt(site, job)
    assert attempt(site, job).native == "found"
    assert moody(site).taken == [job.name]


def test_in_doubt_nothing_is_submitted_until_the_batch_system_answers(
    site: PoolContext, job: Job
) -> None:
    moody(site).after_submit = SubmitUnclear("timed out")
    moody(site).trouble = BackendUnavailable("down")
    for _ in range(3):
        assert attempt(site, job).outcome == submission.UNCLEAR
    moody(site).trouble = None
    assert attempt(site, job).native == "found"
    assert moody(site).taken == [job.name]


def test_what_cannot_be_seen_yet_is_waited_for(site: PoolContext, job: Job) -> None:
    moody(site).after_submit = SubmitUnclear("timed out")
    moody(site).visible, moody(site).visible_after_s = False, 60.0
    attempt(site, job)
    assert attempt(site, job).outcome == submission.DOUBTFUL
    moody(site).visible = True
    assert attempt(site, job).native == "found"
    assert moody(site).taken == [job.name]


def test_what_was_certainly_not_taken_is_submitted_again(site: PoolContext, job: Job) -> None:
    moody(site).before_submit = SubmitUnclear("timed out")
    assert attempt(site, job).outcome == submission.UNCLEAR
    moody(site).before_submit = None
    assert attempt(site, job).native == "native-1"


def test_no_room_leaves_no_doubt(site: PoolContext, job: Job) -> None:
    moody(site).before_submit = NoRoom("full")
    assert attempt(site, job) == Attempt(job.name, submission.WAITS, "full")
    moody(site).before_submit, moody(site).trouble = None, BackendUnavailable("down")
    assert attempt(site, job).outcome == submission.SUBMITTED  # without asking


def test_a_refusal_is_told(site: PoolContext, job: Job) -> None:
    moody(site).before_submit = SubmitRefused("no such partition")
    assert attempt(site, job) == Attempt(job.name, submission.REFUSED, "no such partition")


def test_a_deleted_job_is_not_submitted(site: PoolContext, job: Job) -> None:
    site.journal.bury([Delete(job.name, None)])
    assert attempt(site, job).outcome == submission.DELETED
    assert moody(site).taken == []


def test_a_job_that_is_deleted_before_it_has_a_directory_gets_none(site: PoolContext) -> None:
    job = job_of()
    site.journal.store([job])
    site.journal.bury([Delete(job.name, None)])
    assert attempt(site, job).outcome == submission.MISSING
    assert moody(site).taken == os.listdir(site.journal.jobs) == []


def test_a_file_system_that_cannot_hold_a_job_refuses_it(
    site: PoolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of()
    job = job._replace(files=(File("volumes/" + "x" * 300, b"", 0o600, False),))
    monkeypatch.setattr(names, "_LONGEST_NAME", 500)  # as another kernel's is
    site.journal.store([job])
    refused = Attempt(
        job.name, submission.REFUSED, "its files cannot be written: File name too long"
    )
    assert attempt(site, job) == refused
    assert os.listdir(site.journal.jobs) == os.listdir(site.journal.incoming) == []


def test_a_job_that_another_submitter_has_is_left_alone(site: PoolContext, job: Job) -> None:
    with site.journal.lock(job.name):
        assert attempt(site, job).outcome == submission.BUSY
    assert moody(site).taken == []


def test_a_directory_that_is_gone(site: PoolContext, job: Job) -> None:
    shutil.rmtree(site.journal.of(job.name))
    assert attempt(site, job).outcome == submission.MISSING
    assert not Path(site.journal.of(job.name)).exists()


def test_the_order_is_kept_when_there_is_no_room(site: PoolContext) -> None:
    jobs = [job_of() for _ in range(3)]
    site.journal.store(jobs)
    moody(site).before_submit = NoRoom("full")
    made = Submission(site.journal, site.backend).attempt_all(jobs)
    assert [one.name for one in made] == [jobs[0].name]


# --- what the batch system has lost ---------------------------------------------------------------


def prepare_resubmit(site: PoolContext, job: Job, native: str = "native-1") -> object:
    return Submission(site.journal, site.backend).prepare_resubmit(job.name, native)


def test_a_job_that_was_lost_before_it_began_is_submitted_again(
    site: PoolContext, job: Job
) -> None:
    attempt(site, job)
    assert prepare_resubmit(site, job) == ""
    assert attempt(site, job).outcome == submission.SUBMITTED
    assert moody(site).taken == [job.name] * 2


def test_what_another_submitter_has_submitted_again_is_adopted(site: PoolContext, job: Job) -> None:
    attempt(site, job)
    assert prepare_resubmit(site, job, "the one before") == "native-1"
    assert moody(site).taken == [job.name]


def test_a_job_that_another_submitter_is_at_stays_as_it_is(site: PoolContext, job: Job) -> None:
    attempt(site, job)
    with site.journal.lock(job.name):
        assert prepare_resubmit(site, job) == "native-1"
    assert prepare_resubmit(site, job) == ""


@pytest.mark.parametrize("name", submission.BEGUN_FILES)
def test_a_job_that_has_begun_is_never_submitted_again(
    site: PoolContext, job: Job, name: str
) -> None:
    attempt(site, job)
    Path(site.journal.of(job.name), name).touch()
    assert prepare_resubmit(site, job) is None


def test_a_job_is_not_submitted_for_ever(site: PoolContext, job: Job) -> None:
    for _ in range(submission.MAX_RESUBMITS):
        assert prepare_resubmit(site, job, attempt(site, job).native) == ""
    assert prepare_resubmit(site, job, attempt(site, job).native) is None
