"""The HTCondor backend on a real HTCondor: what it says of jobs, whichever way they go."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from submitter.backends.base import Ticket
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
    ticket = bench.submit("exit 7")
    seen = bench.ended(ticket)
    assert (seen.exit_code, seen.message) == (7, "HTCondor: Completed: exit code 7")
    assert 0 < seen.at_ms <= time.time() * 1000 + 1000
    assert bench.state(ticket).exit_code == 7
    assert bench.condor.find([ticket.name]) == {ticket.name: ticket.native}
    assert bench.condor.clean([ticket]) == {ticket.name}
    assert bench.value(ticket, "ClusterId") == ""
    # What was taken out of the queue had finished all the same.
    assert bench.ended(ticket).exit_code == 7


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
    ticket = bench.submit(WAIT, says, resources=resources)
    bench.until_it_runs(ticket)
    wanted = {
        "RequestCpus": "2",
        "RequestMemory": "300",
        "RequestDisk": "2048",
        "JobPrio": "3",
        "Project": "\"with 'quotes'\"",
        "AcctGroup": '"lab"',
        "InterlinkJob": f'"{ticket.name}"',
        "KubernetesPod": '"job"',
        "KubernetesNamespace": '"tests"',
        "JobMaxVacateTime": "18",
    }
    for name, value in wanted.items():
        assert bench.value(ticket, name).strip("()") == value
    assert 'Machine =!= "a \\" b)"' in bench.value(ticket, "Requirements")


def test_a_job_with_a_gpu_gets_one(bench: Bench) -> None:
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    ticket = bench.submit("echo $CUDA_VISIBLE_DEVICES", resources=limits)
    assert bench.ended(ticket).exit_code == 0
    assert "n2" in bench.value(ticket, "LastRemoteHost")


def test_one_question_answers_for_all(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    tickets = [bench.submit(WAIT) for _ in range(3)]
    asked: list[str] = []
    run = command.run

    def counting(argv: Any, *rest: Any) -> str:
        asked.append(argv[len(bench.pool.options["prefix"])])  # type: ignore[arg-type]
        return run(argv, *rest)

    monkeypatch.setattr(command, "run", counting)
    assert set(bench.condor.poll(tickets)) == {ticket.name for ticket in tickets}
    assert asked == ["condor_q"]
    asked.clear()
    gone = Ticket("gone", "999999.0", "")
    assert set(bench.condor.poll([*tickets, gone])) == {ticket.name for ticket in tickets}
    assert asked == ["condor_q", "condor_history"]


def test_what_is_offered(bench: Bench) -> None:
    offer = bench.condor.capacity()
    expected = {"cpu": "16", "nvidia.com/gpu": "2", "pods": "10000"}
    assert offer == {**expected, "memory": str(2 * 8000 * 1024**2)}


# --- waiting --------------------------------------------------------------------------------------


def test_a_job_that_no_machine_can_run_says_why(bench: Bench) -> None:
    ticket = bench.submit(resources={"requests": {"memory": "100Gi"}})
    words = "no match found: no machine has TARGET.Memory >= RequestMemory"
    seen = bench.until(ticket, lambda seen: words in seen.message)
    assert (seen.phase, seen.reason) == (QUEUED, "Idle")
    bench.condor.cancel([ticket], kill=False)
    assert bench.ended(ticket).reason == "Removed"


def test_one_match_is_analysed_in_a_minute(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever becomes of the job that it was about."""
    asked: list[Sequence[str]] = []
    run = command.run

    def noting(argv: Sequence[str], *rest: Any) -> str:
        asked.append(argv)
        return run(argv, *rest)

    monkeypatch.setattr(command, "run", noting)
    large = {"requests": {"memory": "100Gi"}}
    tickets = [bench.submit(resources=large) for _ in range(2)]
    for ticket in tickets:
        bench.until(ticket, lambda seen: "no match found" in seen.message)
        bench.condor.cancel([ticket], kill=False)
        bench.ended(ticket)
    assert len([argv for argv in asked if "-better-analyze" in argv]) == 1


def test_a_held_job_waits_to_be_released(bench: Bench) -> None:
    ticket = bench.submit(resources={"requests": {"memory": "100Gi"}})
    bench.site.login("condor_hold", "-reason", "lunch", ticket.native)
    seen = bench.until(ticket, lambda seen: seen.reason == "Held")
    assert seen.phase == QUEUED
    assert "a user or an administrator holds it: lunch" in seen.message
    bench.site.login("condor_release", ticket.native)
    bench.until(ticket, lambda seen: seen.reason == "Idle")


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
    ticket = bench.submit(WAIT)
    bench.until_it_runs(ticket)
    bench.site.admin("condor_rm", "-reason", "the machine is mine", ticket.native)
    seen = bench.ended(ticket)
    assert (seen.reason, seen.exit_code) == ("Removed", 143)
    assert "the machine is mine" in seen.message
    assert bench.state(ticket).terminated_by_signal


def test_a_time_limit(site: RunningSite) -> None:
    bench = Bench(site, commands={"allowed_job_duration": "3"})
    ticket = bench.submit(WAIT)
    seen = bench.ended(ticket)
    assert (seen.reason, seen.exit_code) == ("TimeLimit", 143)
    bench.condor.clean([ticket])
    assert bench.value(ticket, "ClusterId") == ""


def test_an_evicted_job_is_over(bench: Bench) -> None:
    ticket = bench.submit(WAIT)
    bench.until_it_runs(ticket)
    bench.site.admin("condor_vacate_job", "-fast", ticket.native)
    seen = bench.ended(ticket)
    assert (seen.reason, seen.lost) == ("Evicted", False)
    bench.condor.clean([ticket])
    assert bench.value(ticket, "ClusterId") == ""


def test_an_evicted_job_starts_again_where_it_may(again: Bench, tmp_path: Path) -> None:
    go = Path(again.pool.directory) / "go"
    ticket = again.submit(f"while [ ! -e {go} ]; do sleep 0.1; done; exit 5")
    again.until_it_runs(ticket)
    first = again.state(ticket).run
    again.site.admin("condor_vacate_job", "-fast", ticket.native)
    eventually(lambda: again.state(ticket).run > first and again.runs(ticket), why=str(ticket))
    go.touch()
    seen = again.ended(ticket)
    assert (seen.phase, seen.exit_code) == (ENDED, 5)
    assert again.state(ticket).containers["main"].restarts == 1


def test_a_node_that_dies_takes_its_job_along(bench: Bench) -> None:
    ticket = bench.submit(WAIT)
    bench.until_it_runs(ticket)
    node = bench.value(ticket, "RemoteHost").strip('"').partition("@")[2].partition(".")[0]
    bench.site.kill(node)
    assert bench.sight(ticket) is not None
    seen = bench.ended(ticket, 180)
    assert seen.reason == "Evicted"


def test_a_job_is_killed_at_once(bench: Bench) -> None:
    ticket = bench.submit("trap '' TERM; " + WAIT, grace=600)
    bench.until_it_runs(ticket)
    bench.condor.cancel([ticket], kill=True)
    bench.ended(ticket)
    bench.condor.cancel([ticket], kill=True)  # once more does no harm


# --- trouble --------------------------------------------------------------------------------------


def test_no_answer_is_no_news(bench: Bench) -> None:
    ticket = bench.submit(WAIT)
    bench.until_it_runs(ticket)
    with bench.site.without_schedd():
        with pytest.raises(BackendUnavailable):
            bench.condor.poll([ticket])
        with pytest.raises(BackendUnavailable):
            bench.submit()

    def goes_on() -> bool:
        try:
            seen = bench.sight(ticket)
        except BackendUnavailable:
            return False
        return seen is not None and seen.phase == STARTED

    eventually(goes_on, why="the schedd is back")
    assert bench.runs(ticket)
