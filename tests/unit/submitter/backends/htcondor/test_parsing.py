"""What HTCondor's programs print, as values, and what follows from it for a job."""

from __future__ import annotations

import json
from typing import Any

import pytest

from submitter.backends.base import Observation
from submitter.backends.htcondor import parsing
from submitter.backends.htcondor.errors import SUBMIT_ERRORS, classify_submit_failure
from submitter.backends.htcondor.observations import PoolRules, observe, observe_ended
from submitter.backends.htcondor.parsing import Ad
from submitter.backends.htcondor.states import FAILED, HELD, HOLDS, RELEASED, STATES, TEMPORARY
from submitter.common.errors import (
    BackendUnavailable,
    CommandFailed,
    NoRoom,
    SubmitRefused,
    SubmitUnclear,
)
from templates.job.status import ENDED, QUEUED, STARTED


def ad(status: int, **values: Any) -> Ad:
    return Ad("7.0", "job", status, {"JobStatus": status, **values})


def seen(status: int, rerun: bool = False, shared: bool = True, **values: Any) -> Observation:
    found = observe(ad(status, **values), PoolRules(rerun, 3, shared))
    assert found is not None
    return found


# --- what is printed ------------------------------------------------------------------------------


def test_the_number_of_a_job() -> None:
    assert parsing.parse_native("12.0 - 12.0\n") == "12.0"
    assert parsing.parse_native("WARNING: x\n12.0 - 12.0\n") == "12.0"
    assert parsing.parse_native("") is None
    assert parsing.parse_native("1 job(s) submitted") is None


def test_ads() -> None:
    good = {"ClusterId": 3, "ProcId": 0, "JobStatus": 2, "InterlinkJob": "a", "ExitCode": 4.0}
    foreign = [{**good, "InterlinkJob": 5}, {**good, "ClusterId": "3"}, {**good, "ProcId": None}]
    (one,) = parsing.parse_ads(json.dumps([good, *foreign]))
    assert (one.native, one.name, one.status, one.number("ExitCode")) == ("3.0", "a", 2, 4)
    assert (one.number("HoldReason"), one.text("ExitCode")) == (0, "")
    assert parsing.parse_ads("") == parsing.parse_ads("[\n]\n") == []
    for broken in ("[{", "{}", "[1]"):
        with pytest.raises(BackendUnavailable):
            parsing.parse_ads(broken)


def test_expressions_for_jobs() -> None:
    assert parsing.match_clusters(["10.0", "9.0", "10.0", "x", "1.0) || (true"]) == (
        "member(ClusterId, {9, 10})"
    )


def test_what_no_machine_has() -> None:
    # As condor_q -better-analyze printed it.
    told = """\
Step   Matched  Condition
----- --------- ---------
[0]           2  TARGET.Arch == "X86_64"
[7]           0  TARGET.Memory >= RequestMemory
[9]           2  TARGET.FileSystemDomain == MY.FileSystemDomain

009.000:  Run analysis summary ignoring user priority.  Of 2 slots on 2 machines,
      2 slots are rejected by your job's requirements
      0 slots reject your job because of their own requirements
"""
    assert parsing.parse_unmet(told) == ["TARGET.Memory >= RequestMemory"]


# --- what it means --------------------------------------------------------------------------------


def test_every_state_is_known() -> None:
    phases = {status: seen(status).phase for status in STATES}
    assert phases == {
        1: QUEUED, 2: STARTED, 3: STARTED, 4: ENDED, 5: ENDED, 6: STARTED, 7: STARTED,
    }  # fmt: skip
    assert observe(ad(99), PoolRules()) is None


def test_an_idle_job_says_why() -> None:
    assert seen(1).message == "HTCondor: Idle"
    assert seen(1, LastRejMatchReason="no match found").message == "HTCondor: no match found"


def test_an_evicted_job() -> None:
    values = {"NumJobStarts": 1, "VacateReason": "preempted", "EnteredCurrentStatus": 5}
    once = seen(1, **values)
    assert (once.phase, once.reason, once.exit_code, once.at_ms) == (ENDED, "Evicted", 143, 5000)
    assert not once.lost
    again = seen(1, rerun=True, **values)
    assert (again.phase, again.requeued) == (QUEUED, True)
    assert again.message == "HTCondor: preempted (started once)"
    assert "started 2 times" in seen(1, rerun=True, NumJobStarts=2).message


def test_ends() -> None:
    done = observe_ended(ad(4, ExitCode=7, ExitBySignal=False, CompletionDate=9))
    assert (done.exit_code, done.at_ms, done.lost) == (7, 9000, False)
    assert observe_ended(ad(4, ExitBySignal=True, ExitSignal=9)).exit_code == 137
    reason = "via condor_rm (by user bob)"
    removed = observe_ended(ad(3, RemoveReason=reason, EnteredCurrentStatus=4))
    assert (removed.reason, removed.exit_code, removed.at_ms) == ("Removed", 143, 4000)
    assert "by user bob" in removed.message
    assert observe_ended(ad(1)).lost


def test_a_finished_job_that_was_taken_out_of_the_queue_has_finished() -> None:
    both = observe_ended(ad(3, ExitCode=7, CompletionDate=9, RemoveReason="the pod's job is over"))
    assert (both.reason, both.exit_code) == ("", 7)
    # One that was removed while it ran has no date of completion.
    assert observe_ended(ad(3, ExitCode=7, CompletionDate=0)).reason == "Removed"


@pytest.mark.parametrize("code", sorted(HOLDS))
def test_holds(code: int) -> None:
    values = {"HoldReasonCode": code, "HoldReason": "the words", "NumHolds": 1}
    found = seen(HELD, **values)
    hold = HOLDS[code]
    assert found.message.startswith(f"HTCondor: Held: {hold.meaning}: the words")
    assert found.phase == (ENDED if hold.action == FAILED else QUEUED)
    if hold.action == FAILED:
        assert (found.reason, found.exit_code) == (hold.reason, hold.exit_code)
    assert found.message.endswith("it is released again") == (hold.action == RELEASED)


def test_what_passes_is_not_waited_for_for_ever() -> None:
    values = {"HoldReasonCode": TEMPORARY[0]}
    assert seen(HELD, **values, NumHolds=3).phase == QUEUED
    assert seen(HELD, **values, NumHolds=4).phase == ENDED
    # A job that has started fits nowhere any more, unless it may start again.
    assert seen(HELD, **values, NumJobStarts=1).phase == ENDED
    assert seen(HELD, rerun=True, **values, NumJobStarts=1).requeued


def test_without_a_shared_directory_a_start_that_was_tried_counts() -> None:
    tried = {"NumShadowStarts": 1, "NumJobStarts": 0}
    assert seen(1, **tried).phase == QUEUED
    alone = seen(1, shared=False, **tried)
    assert (alone.phase, alone.reason, alone.lost) == (ENDED, "Evicted", False)
    held = seen(HELD, shared=False, HoldReasonCode=13, **tried)
    assert (held.phase, held.lost) == (ENDED, False)
    assert seen(HELD, HoldReasonCode=13, **tried).phase == QUEUED


# Of a job whose startd had forgotten the claim, as condor_q -json printed it.
REFUSED = {
    "NumJobStarts": 0,
    "NumShadowStarts": 1,
    "NumVacatesByReason": {"ActivationRefusedClaimNotFound": 1},
    "VacateReason": "ClaimId not found",
    "VacateReasonCode": 1034,
}


def test_without_a_shared_directory_a_start_that_was_refused_counts_as_none() -> None:
    assert seen(1, shared=False, **REFUSED).phase == QUEUED
    assert seen(HELD, shared=False, HoldReasonCode=13, **REFUSED).phase == QUEUED
    again = {**REFUSED, "NumShadowStarts": 2}
    assert seen(1, shared=False, **again).reason == "Evicted"
    both = {"FailedToActivateClaim": 1, **REFUSED["NumVacatesByReason"]}
    assert seen(1, shared=False, **{**again, "NumVacatesByReason": both}).phase == QUEUED
    assert seen(1, shared=False, **{**REFUSED, "NumJobStarts": 1}).reason == "Evicted"


@pytest.mark.parametrize(
    "counts",
    [None, 1, [], {}, {"StarterError": 1}, {"FailedToActivateClaim": "1"},
     {"FailedToActivateClaim": 1, "ActivationRefusedOldClaim": 1}],
)  # fmt: skip
def test_what_does_not_say_that_each_start_was_refused(counts: Any) -> None:
    odd = {**REFUSED, "NumVacatesByReason": counts}
    assert seen(1, shared=False, **odd).reason == "Evicted"


def test_a_hold_that_nobody_knows_is_waited_for() -> None:
    assert seen(HELD, HoldReasonCode=4711).phase == QUEUED


# --- what condor_submit complains of --------------------------------------------------------------


def failed(words: str, output: str = "") -> CommandFailed:
    return CommandFailed("condor_submit", f"exit code 1: ERROR: {words}", 1, output)


@pytest.mark.parametrize(("words", "kind"), SUBMIT_ERRORS)
def test_each_complaint(words: str, kind: type[Exception]) -> None:
    assert type(classify_submit_failure(failed(words))) is kind


def test_complaints_at_large() -> None:
    # The first one as it was printed.
    told = "Parse error in expression: Requirements = ((x) && (TARGET.Arch"
    assert isinstance(classify_submit_failure(failed(told)), SubmitRefused)
    both = "Failed to commit job submission into the queue. ERROR: MAX_JOBS_SUBMITTED"
    assert isinstance(classify_submit_failure(failed(both)), NoRoom)
    assert isinstance(classify_submit_failure(failed("something new")), SubmitUnclear)
