"""The tables of states, reasons and errors, by texts of a real Slurm."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import pytest

from submitter.backends.base import JobRef
from submitter.backends.slurm.backend import SlurmBackend
from submitter.backends.slurm.errors import classify_submit_failure
from submitter.backends.slurm.observations import observe
from submitter.backends.slurm.parsing import Row
from submitter.backends.slurm.states import describe_waiting, find_state
from submitter.common.errors import (
    BackendUnavailable,
    CommandFailed,
    NoRoom,
    SubmitRefused,
    SubmitterError,
    SubmitUnclear,
)
from submitter.config.settings import Pool
from templates.job.status import ENDED, QUEUED, STARTED
from tests.unit.submitter.rig import job_of

FAILED = "exit code 1: sbatch: error: Batch job submission failed: "
# What `squeue --helpstate` lists, and what the manual adds to it.
ALL_STATES = (
    "pending running suspended completed cancelled failed timeout node_fail preempted boot_fail"
    " deadline out_of_memory completing configuring expediting resizing resv_del_hold requeued"
    " requeue_fed requeue_hold revoked signaling special_exit stage_out stopped launch_failed"
    " power_up_node reconfig_fail"
)


def test_every_state_is_known() -> None:
    assert [name for name in ALL_STATES.upper().split() if find_state(name) is None] == []
    assert find_state("CANCELLED by 1000") == find_state("CANCELLED") == find_state("CANCELLED+")
    assert find_state("SOMETHING_NEW") is None


@pytest.mark.parametrize(
    ("state", "code", "expected"),
    [
        ("COMPLETED", "0:0", (ENDED, "", 0)),
        ("FAILED", "3:0", (ENDED, "", 3)),
        ("FAILED", "0:9", (ENDED, "", 137)),
        ("TIMEOUT", "0:0", (ENDED, "TimeLimit", 143)),
        ("OUT_OF_MEMORY", "0:125", (ENDED, "OOMKilled", 137)),
        ("PREEMPTED", "0:0", (ENDED, "Preempted", 143)),
        ("NODE_FAIL", "0:0", (ENDED, "NodeFail", 1)),
        ("CANCELLED by 0", "0:0", (ENDED, "Cancelled", 143)),
        ("RUNNING", "", (STARTED, "", 0)),
        ("COMPLETING", "", (STARTED, "", 0)),
        ("REQUEUE_HOLD", "", (QUEUED, "Held", 0)),
    ],
)
def test_what_a_state_means(state: str, code: str, expected: tuple[str, str, int]) -> None:
    seen = observe(Row("1", "n", state, exit_code=code))
    assert seen is not None
    assert (seen.phase, seen.reason, seen.exit_code) == expected


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("slurmstepd: error: Job 5 exceeded memory limit (9 > 1), being killed\n", "OOMKilled"),
        ("error: Exceeded job memory limit\n", "OOMKilled"),
        (
            "[...] StepId=1.batch exceeded memory limit (207335424 > 62914560)" + 9 * "\n",
            "OOMKilled",
        ),
        ("Killed\n", ""),
        (None, ""),
    ],
)
def test_memory_is_told_from_other_kills_by_the_output(
    tmp_path: Path, said: Optional[str], reason: str
) -> None:
    if said is not None:
        (tmp_path / "output").write_text("x" * 100_000 + said)
    seen = observe(Row("1", "n", "FAILED", exit_code="0:9"), str(tmp_path))
    assert seen is not None
    assert (seen.reason, seen.exit_code) == (reason, 137)
    assert seen.message.startswith("Slurm: FAILED (exit code 0:9): it ")
    other = observe(Row("1", "n", "FAILED", exit_code="3:0"), str(tmp_path))
    assert other is not None
    assert other.reason == ""


@pytest.mark.parametrize(
    ("ran_s", "warning_s", "cause"),
    [(1730, 60, "TimeLimit"), (1690, 60, "TimeLimit"), (1670, 60, ""), (1790, 0, "")],
)
def test_who_was_told_to_end_near_the_limit_has_reached_it(
    ran_s: int, warning_s: int, cause: str
) -> None:
    row = Row("1", "n", "FAILED", "", 0, "143:0", 10_000 + ran_s, 10_000, 1800)
    seen = observe(row, warning_s=warning_s)
    assert seen is not None
    assert (seen.reason, seen.if_terminated) == ("", cause)


def test_a_requeue_is_told() -> None:
    seen = observe(Row("1", "n", "PENDING", "BeginTime", restarts=2))
    assert seen is not None
    assert seen.requeued
    assert seen.message.endswith("(put back into the queue 2 times)")
    fresh = observe(Row("1", "n", "PENDING", "Priority"))
    assert fresh is not None
    assert not fresh.requeued


@pytest.mark.parametrize(
    ("text", "reason", "words"),
    [
        ("None", "", ""),
        ("Priority", "Priority", "Slurm: Priority: jobs with a higher priority come first"),
        ("JobHeldAdmin", "Held", "Slurm: JobHeldAdmin: it is held by an administrator"),
        ("launch failed requeued held", "Held", "Slurm: launch failed requeued held: it is held"),
        (
            "ReqNodeNotAvail, UnavailableNodes:n1",
            "ReqNodeNotAvail",
            "Slurm: ReqNodeNotAvail, UnavailableNodes:n1: a node that it needs is not available",
        ),
        ("SomethingNew", "SomethingNew", "Slurm: SomethingNew"),
    ],
)
def test_why_a_job_waits(text: str, reason: str, words: str) -> None:
    assert describe_waiting(text) == (reason, words)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (FAILED + "Invalid partition name specified", SubmitRefused),
        (FAILED + "Something that nobody has seen", SubmitRefused),
        (FAILED + "Socket timed out on send/recv operation", SubmitUnclear),
        (FAILED + "Unable to contact slurm controller (connect failure)", SubmitUnclear),
        (
            # Of a controller that was killed while it was asked, as sbatch 26.05 says it.
            "exit code 1: sbatch: error: slurm_send_node_msg: [socket:[5624905]] "
            "slurm_bufs_sendto(msg_type=REQUEST_SUBMIT_BATCH_JOB) failed: Unexpected missing "
            f"socket error {FAILED}Unexpected missing socket error",
            SubmitUnclear,
        ),
        (FAILED + "Protocol authentication error", BackendUnavailable),
        (FAILED + "MaxJobCount limit reached", NoRoom),
        (
            "exit code 1: sbatch: error: QOSMaxSubmitJobPerUserLimit sbatch: error: Batch job "
            "submission failed: Job violates accounting/QOS policy (job submit limit, user's size "
            "and/or time limits)",
            NoRoom,
        ),
        (
            "exit code 1: sbatch: error: QOSMaxCpuPerJobLimit sbatch: error: Batch job submission "
            "failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time "
            "limits)",
            SubmitRefused,
        ),
        ("took longer than 60 s", SubmitUnclear),
        ("signal 9", SubmitUnclear),
        ("cannot be started: No such file or directory", BackendUnavailable),
    ],
)
def test_what_follows_from_an_error(text: str, kind: type[SubmitterError]) -> None:
    failure = classify_submit_failure(CommandFailed("sbatch", text, 1))
    assert type(failure) is kind
    assert "sbatch: error" not in str(failure)


def test_a_wrong_option_is_refused() -> None:
    text = "exit code 255: sbatch: unrecognized option '--foo'"
    assert type(classify_submit_failure(CommandFailed("sbatch", text, 255))) is SubmitRefused


# --- a scripted sbatch, for what a real one does not do on demand ---------------------------------


def site(folder: Path, **programs: str) -> SlurmBackend:
    (folder / "pool" / "jobs").mkdir(parents=True, exist_ok=True)
    for name, text in programs.items():
        path = folder / name
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)
    named = {name: str(folder / name) for name in programs}
    options = {"programs": named, "accounting": "off", "timeout_s": 1}
    return SlurmBackend(Pool(name="p", directory=str(folder / "pool"), options=options))


@pytest.mark.parametrize(
    "text", ["echo 34; echo warning >&2", "echo 34; echo 'sbatch: error: odd' >&2; exit 1"]
)
def test_a_number_counts_whatever_else_is_said(tmp_path: Path, text: str) -> None:
    assert site(tmp_path, sbatch=f"cat >/dev/null; {text}").submit(job_of(), "/d") == "34"


@pytest.mark.parametrize("text", ["exit 0", "echo nothing", "sleep 5", "kill -9 $$"])
def test_no_number_is_unclear(tmp_path: Path, text: str) -> None:
    with pytest.raises(SubmitUnclear):
        site(tmp_path, sbatch=f"cat >/dev/null; {text}").submit(job_of(), "/d")


def test_a_strangers_job_with_our_number_is_not_ours(tmp_path: Path) -> None:
    line = (
        "34".ljust(24)
        + "RUNNING".ljust(20)
        + "0".ljust(12)
        + "another".ljust(80)
        + "None".ljust(100)
    )
    slurm = site(tmp_path, squeue=f"echo '{line}'", scancel=f"touch {tmp_path}/cancelled")
    ref = JobRef("mine", "34", "/d")
    assert slurm.poll([ref]) == {}
    slurm.cancel([ref], kill=True)
    assert not (tmp_path / "cancelled").exists()
