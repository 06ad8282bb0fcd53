"""The HTCondor backend on a real HTCondor: what it says of jobs, whichever way they go."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from submitter.backends.base import JobRef
from submitter.common import command
from submitter.common.errors import BackendUnavailable, NoRoom, SubmitRefused
from templates.job.status import ENDED, QUEUED, STARTED
from tests.sites.htcondor.bench import WAIT, Bench, schedd_with
from tests.sites.htcondor.site import RunningSite
from tests.unit.submitter.rig import eventually


@pytest.fixture
def bench(site: RunningSite) -> Bench:
    return Bench(site)


@pytest.fixture
def again(site: RunningSite) -> Bench:
    """One whose jobs may be started again."""
    return Bench(site, rerun=True)


# --- the usual way --------------------------------------------------------------------------------


def test_a_job_runs_and_ends(bench: Bench) -> None:
    ref = bench.submit("exit 7")
    seen = bench.ended(ref)
    assert (seen.exit_code, seen.message) == (7, "HTCondor: Completed: exit code 7")
    assert 0 < seen.at_ms <= time.time() * 1000 + 1000
    assert bench.state(ref).exit_code == 7
    assert bench.condor.find([ref.name]) == {ref.name: ref.native}
    assert bench.condor.clean([ref]) == {ref.name}
    assert bench.value(ref, "ClusterId") == ""
    # What was taken out of the queue had finished all the same.
    assert bench.ended(ref).exit_code == 7


def test_what_the_pod_asks_for_reaches_htcondor(site: RunningSite) -> None:
    allowed = {"pod_annotations": ["*"], "pod_attributes": ["Project"]}
    bench = Bench(site, **allowed, accounting_group="lab", requirements="Cpus > 0")
    says = {
        "requirements": 'Machine =!= "a \\" b)"',
        "rank": "Memory",
        "disk": "2Mi",
        "priority": "3",
        "attributes": "Project = \"with 'quotes'\"",
    }
    resources = {"requests": {"cpu": "1500m", "memory": "300Mi"}}
    ref = bench.submit(WAIT, says, resources=resources)
    bench.until_it_runs(ref)
    wanted = {
        "RequestCpus": "2",
        "RequestMemory": "300",
        "RequestDisk": "2048",
        "JobPrio": "3",
        "Project": "\"with 'quotes'\"",
        "AcctGroup": '"lab"',
        "InterlinkJob": f'"{ref.name}"',
        "KubernetesPod": '"job"',
        "KubernetesNamespace": '"tests"',
        "JobMaxVacateTime": "18",
    }
    for name, value in wanted.items():
        assert bench.value(ref, name).strip("()") == value
    assert 'Machine =!= "a \\" b)"' in bench.value(ref, "Requirements")


def test_a_job_with_a_gpu_gets_one(bench: Bench) -> None:
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    ref = bench.submit("echo $CUDA_VISIBLE_DEVICES", resources=limits)
    assert bench.ended(ref).exit_code == 0
    assert "n2" in bench.value(ref, "LastRemoteHost")


def test_one_question_answers_for_all(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    refs = [bench.submit(WAIT) for _ in range(3)]
    asked: list[str] = []
    run = command.run

    def counting(argv: Any, *rest: Any) -> str:
        asked.append(argv[len(bench.pool.options["prefix"])])  # type: ignore[arg-type]
        return run(argv, *rest)

    monkeypatch.setattr(command, "run", counting)
    assert set(bench.condor.poll(refs)) == {ref.name for ref in refs}
    assert asked == ["condor_q"]
    asked.clear()
    gone = JobRef("gone", "999999.0", "")
    assert set(bench.condor.poll([*refs, gone])) == {ref.name for ref in refs}
    assert asked == ["condor_q", "condor_history"]


def test_what_is_offered(bench: Bench) -> None:
    offer = bench.condor.capacity()
    expected = {"cpu": "16", "nvidia.com/gpu": "2", "pods": "10000"}
    assert offer == {**expected, "memory": str(2 * 8000 * 1024**2)}


# --- waiting --------------------------------------------------------------------------------------


def test_a_job_that_no_machine_can_run_says_why(bench: Bench) -> None:
    ref = bench.submit(resources={"requests": {"memory": "100Gi"}})
    words = "no match found: no machine has TARGET.Memory >= RequestMemory"
    seen = bench.until(ref, lambda seen: words in seen.message)
    assert (seen.phase, seen.reason) == (QUEUED, "Idle")
    bench.condor.cancel([ref], kill=False)
    assert bench.ended(ref).reason == "Removed"


def test_one_match_is_analysed_in_a_minute(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever becomes of the job that it was about."""
    asked: list[Sequence[str]] = []
    run = command.run

    def noting(argv: Sequence[str], *rest: Any) -> str:
        asked.append(argv)
        return run(argv, *rest)

    monkeypatch.setattr(command, "run", noting)
    large = {"requests": {"memory": "100Gi"}}
    refs = [bench.submit(resources=large) for _ in range(2)]
    for ref in refs:
        bench.until(ref, lambda seen: "no match found" in seen.message)
        bench.condor.cancel([ref], kill=False)
        bench.ended(ref)
    assert len([argv for argv in asked if "-better-analyze" in argv]) == 1


def test_a_held_job_waits_to_be_released(bench: Bench) -> None:
    ref = bench.submit(resources={"requests": {"memory": "100Gi"}})
    bench.site.login("condor_hold", "-reason", "lunch", ref.native)
    seen = bench.until(ref, lambda seen: seen.reason == "Held")
    assert seen.phase == QUEUED
    assert "a user or an administrator holds it: lunch" in seen.message
    bench.site.login("condor_release", ref.native)
    bench.until(ref, lambda seen: seen.reason == "Idle")


def test_no_room(bench: Bench) -> None:
    first = bench.submit(WAIT)

    def is_full() -> bool:
        try:
            bench.submit(WAIT)
        except NoRoom:
            return True
        return False

    with schedd_with(bench.site, MAX_JOBS_PER_OWNER=1):
        eventually(is_full, why="no room")
    bench.condor.cancel([first], kill=True)


def test_what_condor_submit_refuses(site: RunningSite) -> None:
    bench = Bench(site, pod_annotations=["requirements"])
    with pytest.raises(SubmitRefused, match="attribute references from Requirements"):
        bench.submit(says={"requirements": "1 2 3"})
    with pytest.raises(SubmitRefused, match="is not closed"):
        bench.submit(says={"requirements": "(1"})


# --- ends -----------------------------------------------------------------------------------------


def test_a_job_that_is_removed(bench: Bench) -> None:
    ref = bench.submit(WAIT)
    bench.until_it_runs(ref)
    bench.site.admin("condor_rm", "-reason", "the machine is mine", ref.native)
    seen = bench.ended(ref)
    assert (seen.reason, seen.exit_code) == ("Removed", 143)
    assert "the machine is mine" in seen.message
    assert bench.state(ref).terminated_by_signal


def test_a_time_limit(site: RunningSite) -> None:
    bench = Bench(site, commands={"allowed_job_duration": "3"})
    ref = bench.submit(WAIT)
    seen = bench.ended(ref)
    assert (seen.reason, seen.exit_code) == ("TimeLimit", 143)
    bench.condor.clean([ref])
    assert bench.value(ref, "ClusterId") == ""


def test_an_evicted_job_is_over(bench: Bench) -> None:
    ref = bench.submit(WAIT)
    bench.until_it_runs(ref)
    bench.site.admin("condor_vacate_job", "-fast", ref.native)
    seen = bench.ended(ref)
    assert (seen.reason, seen.lost) == ("Evicted", False)
    bench.condor.clean([ref])
    assert bench.value(ref, "ClusterId") == ""


def test_an_evicted_job_starts_again_where_it_may(again: Bench, tmp_path: Path) -> None:
    go = Path(again.pool.directory) / "go"
    ref = again.submit(f"while [ ! -e {go} ]; do sleep 0.1; done; exit 5")
    again.until_it_runs(ref)
    first = again.state(ref).run
    again.site.admin("condor_vacate_job", "-fast", ref.native)
    eventually(lambda: again.state(ref).run > first and again.runs(ref), why=str(ref))
    go.touch()
    seen = again.ended(ref)
    assert (seen.phase, seen.exit_code) == (ENDED, 5)
    assert again.state(ref).containers["main"].restarts == 1


def test_a_node_that_dies_takes_its_job_along(bench: Bench) -> None:
    ref = bench.submit(WAIT)
    bench.until_it_runs(ref)
    node = bench.value(ref, "RemoteHost").strip('"').partition("@")[2].partition(".")[0]
    bench.site.kill(node)
    assert bench.sight(ref) is not None
    seen = bench.ended(ref, 180)
    assert seen.reason == "Evicted"


def test_a_job_is_killed_at_once(bench: Bench) -> None:
    ref = bench.submit("trap '' TERM; " + WAIT, grace=600)
    bench.until_it_runs(ref)
    bench.condor.cancel([ref], kill=True)
    bench.ended(ref)
    bench.condor.cancel([ref], kill=True)  # once more does no harm


# --- trouble --------------------------------------------------------------------------------------


def test_no_answer_is_no_news(bench: Bench) -> None:
    ref = bench.submit(WAIT)
    bench.until_it_runs(ref)
    with bench.site.without_schedd():
        with pytest.raises(BackendUnavailable):
            bench.condor.poll([ref])
        with pytest.raises(BackendUnavailable):
            bench.submit()

    def goes_on() -> bool:
        try:
            seen = bench.sight(ref)
        except BackendUnavailable:
            return False
        return seen is not None and seen.phase == STARTED

    eventually(goes_on, why="the schedd is back")
    assert bench.runs(ref)
