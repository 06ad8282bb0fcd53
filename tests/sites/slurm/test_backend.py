"""The Slurm backend on a real Slurm: what it says of jobs that go all the ways that jobs can go."""

from __future__ import annotations

import json
import os
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from submitter.backends.base import JobRef, Observation
from submitter.backends.slurm.backend import SlurmBackend
from submitter.common.errors import BackendUnavailable, NoRoom, SubmitRefused, SubmitUnclear
from submitter.config.settings import Pool
from submitter.store.journal import Journal
from templates.job.model import Job
from templates.job.status import ENDED, QUEUED, STARTED
from templates.pod.user_manifests import read_manifests
from templates.site.build_config import BuildConfig, Runtime, Script
from templates.translation.build import build
from tests.sites.slurm.site import USER, USER_ID, SlurmSite
from tests.unit.submitter.bench import BackendBench
from tests.unit.submitter.rig import eventually, job_of, placed

pytestmark = pytest.mark.slurm

WAIT = "while :; do sleep 0.2; done"


class Bench(BackendBench):
    """A pool of the site whose programs are started from here, as its user on the login node."""

    def __init__(self, site: SlurmSite, rerun: bool = False, **options: Any) -> None:
        self.site = site
        self.config = BuildConfig(runtime=Runtime(name="host"), script=Script(rerun=rerun))
        folder = site.home / f"pool-{time.monotonic_ns()}"
        prefix = site.command("login", ["env", "SLURM_TIME_FORMAT=%s"], USER)
        self.pool = Pool(
            name="site",
            directory=str(folder),
            backend="slurm",
            build=self.config,
            options={"prefix": prefix, "user": USER, **options},
        )
        self.journal = Journal(str(folder))
        self.journal.prepare()
        self.backend = self.slurm = SlurmBackend(self.pool)
        self._hand_over(folder)

    def _hand_over(self, folder: Path) -> None:
        for path in [folder, *folder.rglob("*")]:
            os.chown(path, USER_ID, USER_ID)

    def journaled(self, script: str = "exit 0", flags: str = "", **more: Any) -> Job:
        pod = job_of(script, **more)
        if self.config.script.rerun:
            pod = _rebuilt(script, self.config)
        job = pod._replace(annotations={"flags": flags} if flags else {})
        placed(self.journal, job)
        self._hand_over(Path(self.journal.of(job.name)))
        return job

    def submit(self, script: str = "exit 0", flags: str = "", **more: Any) -> JobRef:
        job = self.journaled(script, flags, **more)
        directory = self.journal.of(job.name)
        return JobRef(job.name, self.slurm.submit(job, directory), directory)


def _rebuilt(script: str, config: BuildConfig) -> Job:
    container = {"name": "main", "image": "none", "command": ["bash", "-c", script]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "job", "namespace": "tests", "uid": str(uuid.uuid4())},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 3,
            "containers": [container],
        },
    }
    return build(read_manifests([("pod.json", json.dumps(pod))]), config)


@pytest.fixture
def bench(site: SlurmSite) -> Bench:
    return Bench(site)


@pytest.fixture
def again(site: SlurmSite) -> Bench:
    """One whose jobs may be started again."""
    return Bench(site, rerun=True)


# --- the usual way --------------------------------------------------------------------------------


def test_a_job_runs_and_ends(bench: Bench) -> None:
    ref = bench.submit("exit 7")
    assert ref.native.isdigit()
    seen = bench.ended(ref)
    assert seen.exit_code == 7
    assert seen.message.startswith("Slurm: FAILED (exit code 7:0)")
    assert 0 < seen.at_ms <= time.time() * 1000 + 1000
    assert bench.state(ref).exit_code == 7
    assert bench.slurm.find([ref.name]) == {ref.name: ref.native}


def test_what_the_pod_asks_for_reaches_slurm(bench: Bench) -> None:
    flags = "--job-name=mine -t 10 --ntasks=2 --comment='two words \"quoted\" \\ $HOME #x'"
    ref = bench.submit(WAIT, flags, resources={"requests": {"cpu": "1500m", "memory": "300Mi"}})
    bench.until_it_runs(ref)
    told = bench.site.admin("scontrol", "show", "job", ref.native)
    for words in (
        f"JobName={ref.name}",
        "NumTasks=2",
        "CPUs/Task=2",
        "MinMemoryNode=300M",
        "TimeLimit=00:10:00",
        'Comment=two words "quoted" \\ $HOME #x',
        "Requeue=0",
        f"WorkDir={ref.directory}",
    ):
        assert words in told
    environment = bench.site.login("scontrol", "write", "batch_script", ref.native, "-")
    assert environment.count("\n#SBATCH ") > 8


def test_several_jobs_cost_one_question(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    refs = [bench.submit(WAIT) for _ in range(3)]
    asked: list[str] = []
    query = bench.slurm._commands.query

    def noting(program: str, *arguments: str) -> str:
        asked.append(program)
        return query(program, *arguments)

    bench.slurm._commands.configuration()
    monkeypatch.setattr(bench.slurm._commands, "query", noting)
    assert len(bench.slurm.poll(refs)) == 3
    assert asked == ["squeue"]
    bench.slurm.cancel(refs, kill=True)
    asked.clear()
    eventually(lambda: all(s.phase == ENDED for s in bench.slurm.poll(refs).values()), 60)
    assert asked[-2:] == ["squeue", "sacct"]


# --- waiting --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "reason", "words"),
    [
        ("--hold", "Held", "Slurm: JobHeldUser: it is held by its user"),
        ("--begin=now+1hour", "BeginTime", "Slurm: BeginTime: its earliest start time"),
        ("--nodes=3 --cpus-per-task=5", "", ""),
    ],
)
def test_why_a_job_waits(bench: Bench, flags: str, reason: str, words: str) -> None:
    if not reason:
        bench.submit(WAIT, "--nodes=3 --exclusive")
        reason, words = "Resources", "Slurm: Resources: it waits until"
        flags = "--nodes=3 --exclusive"
    ref = bench.submit(WAIT, flags)
    seen = bench.until(ref, lambda one: one.reason == reason)
    assert seen.phase == QUEUED
    assert seen.message.startswith(words)
    bench.slurm.cancel([ref], kill=False)
    assert bench.ended(ref).reason == "Cancelled"
    assert bench.state(ref).run == 0


def test_a_limit_of_a_qos(bench: Bench) -> None:
    refs = [bench.submit(WAIT, "--qos=small") for _ in range(5)]
    with pytest.raises(NoRoom, match="QOSMaxSubmitJobPerUserLimit"):
        bench.submit(WAIT, "--qos=small")
    seen = bench.until(refs[-1], lambda one: one.reason == "QOSMaxJobsPerUserLimit")
    assert "a limit of its QoS is reached" in seen.message


# --- ending ---------------------------------------------------------------------------------------


def test_a_term_reaches_the_script_alone(bench: Bench) -> None:
    ref = bench.submit("trap 'exit 4' TERM; " + WAIT)
    bench.until_it_runs(ref)
    bench.slurm.cancel([ref], kill=False)
    bench.ended(ref)
    state = bench.state(ref)
    end = state.containers["main"].end
    assert end is not None
    assert (end.exit_code, state.terminated_by_signal) == (4, True)


def test_a_kill_ends_it(bench: Bench) -> None:
    ref = bench.submit("trap '' TERM; " + WAIT, grace=600)
    bench.until_it_runs(ref)
    bench.slurm.cancel([ref], kill=False)
    bench.slurm.cancel([ref], kill=True)
    assert bench.ended(ref).reason == "Cancelled"
    bench.slurm.cancel([ref], kill=True)  # does no harm


def test_a_job_that_cannot_write_its_output(bench: Bench) -> None:
    ref = bench.submit("exit 0", "-o /nowhere/output")
    seen = bench.ended(ref)
    assert "could not open the job's directory or output file" in seen.message
    assert seen.exit_code != 0


# --- submissions that fail ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("-p nowhere", "Invalid partition name specified"),
        ("-A nobody", "Invalid account or account/partition combination specified"),
        ("--qos=nothing", "Invalid qos specification"),
        ("--mem=900G", "Requested node configuration is not available"),
        ("--time=90-0", "Requested time limit is invalid"),
        ("--no-such-flag=1", "unrecognized option"),
        ("--gres=gpu:h100:1", "."),
    ],
)
def test_refusals(bench: Bench, flags: str, words: str) -> None:
    with pytest.raises(SubmitRefused, match=words) as caught:
        bench.submit("exit 0", flags)
    assert "\n" not in str(caught.value)
    assert "sbatch: error" not in str(caught.value)


def test_a_controller_that_is_away(bench: Bench) -> None:
    ref = bench.submit(WAIT)
    bench.until_it_runs(ref)
    bench.site.until_saved()  # what it has not saved, it forgets
    bench.site.kill("slurmctld")
    for question in (
        lambda: bench.slurm.poll([ref]),
        lambda: bench.slurm.cancel([ref], kill=False),
        lambda: bench.slurm.find(["another"]),
    ):
        with pytest.raises(BackendUnavailable):
            question()
    with pytest.raises(SubmitUnclear):
        bench.submit("exit 0")
    bench.site.start("slurmctld")

    def answers() -> bool:
        try:
            return bench.slurm.poll([ref])[ref.name].phase == STARTED
        except (BackendUnavailable, KeyError):
            return False

    eventually(answers, 60)


# --- starting again -------------------------------------------------------------------------------


def test_no_requeue_where_the_site_does_not_want_it(bench: Bench) -> None:
    ref = bench.submit(WAIT)
    bench.until_it_runs(ref)
    code, _ = bench.site.attempt("scontrol", "requeue", ref.native)
    assert code != 0
    assert bench.sight(ref) == Observation(STARTED)


def test_a_node_dies_and_the_job_starts_elsewhere(again: Bench) -> None:
    ref = again.submit(WAIT, "-p main -x n3")
    again.until_it_runs(ref)
    first = again.state(ref)
    again.site.kill(first.node)
    eventually(lambda: again.state(ref).run > first.run, 120)
    again.until_it_runs(ref)
    state = again.state(ref)
    assert state.node != first.node
    assert state.containers["main"].restarts == 1
