"""The HTCondor backend where the machines see nothing of the submitter's files."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from scripts.lib.condor.files import DOMAIN
from submitter.backends.htcondor import transfer
from submitter.backends.htcondor.backend import HTCondorBackend
from submitter.config.settings import Pool
from templates.common.errors import ConfigError
from templates.job.model import File
from templates.job.status import QUEUED
from templates.site.build_config import BuildConfig, Script
from tests.sites.htcondor.bench import WAIT, Bench, schedd_with
from tests.sites.htcondor.site import RunningSite
from tests.unit.submitter.rig import eventually, placed


@pytest.fixture(scope="session")
def the_site(the_apart_site: RunningSite) -> RunningSite:
    return the_apart_site


@pytest.fixture
def bench(site: RunningSite) -> Bench:
    return Bench(site, shared=False)


def test_the_machines_do_not_see_the_pool(bench: Bench) -> None:
    for node in bench.site.nodes:
        assert bench.site.run(node, ["ls", bench.pool.directory]).returncode != 0


def test_logs_and_states_come_back_while_a_job_runs(bench: Bench) -> None:
    go = bench.site.directory / "witness" / "go"
    ref = bench.submit(f"echo first; while [ ! -e {go} ]; do sleep 0.1; done; echo last; exit 3")
    log = Path(ref.directory) / "logs" / "main.0.log"

    def has_begun() -> bool:
        bench.sight(ref)
        return bench.runs(ref) and log.exists() and log.read_bytes() == b"first\n"

    eventually(has_begun, why=str(ref))
    go.touch()
    seen = bench.ended(ref)
    assert (seen.exit_code, seen.message) == (3, "HTCondor: Completed: exit code 3")
    assert log.read_bytes() == b"first\nlast\n"
    assert bench.state(ref).exit_code == 3
    assert bench.state(ref).node in bench.site.nodes
    assert bench.condor.find([ref.name]) == {ref.name: ref.native}


def test_without_streams_all_of_it_comes_at_the_end(site: RunningSite) -> None:
    bench = Bench(site, shared=False, stream=False)
    ref = bench.submit("echo first; exit 4")
    assert bench.ended(ref).exit_code == 4
    assert (Path(ref.directory) / "logs" / "main.0.log").read_bytes() == b"first\n"
    assert bench.state(ref).exit_code == 4


def test_secrets_are_nobody_elses_and_do_not_stay(bench: Bench) -> None:
    there = "/var/lib/condor/execute/dir_*/scratch/job/secret/key"
    job = bench.journaled(f"for key in {there}; do stat -c %a $key; cat $key; done; sleep 1")
    job = job._replace(files=(*job.files, File("secret/key", b"hush\n", 0o600, True)))
    bench.journal.remove(job.name)
    placed(bench.journal, job)
    bench.hand_over()
    ref = bench.hand_in(job)
    directory = Path(ref.directory)
    assert (directory / transfer.INPUT).stat().st_mode & 0o777 == 0o600
    encrypted = bench.value(ref, "EncryptInputFiles").strip('"')
    assert encrypted == str(directory / transfer.INPUT)
    bench.ended(ref)
    assert (directory / "logs" / "main.0.log").read_bytes() == b"600\nhush\n"
    bench.condor.clean([ref])
    left = {path.name for path in directory.iterdir()}
    assert not left & {transfer.INPUT, transfer.STUB, transfer.STREAM}
    for node in bench.site.nodes:
        found = bench.site.run(node, ["grep", "-rls", "hush", "/var/lib/condor/execute"]).stdout
        assert found == ""


def test_a_job_that_is_deleted_has_its_last_word(bench: Bench) -> None:
    ref = bench.submit("trap 'echo told; exit 4' TERM; " + WAIT)

    def runs() -> bool:
        bench.sight(ref)
        return bench.runs(ref)

    eventually(runs, why=str(ref))
    bench.condor.cancel([ref], kill=False)
    assert bench.ended(ref).reason == "Removed"
    assert (Path(ref.directory) / "logs" / "main.0.log").read_bytes() == b"told\n"
    end = bench.state(ref).containers["main"].end
    assert end is not None
    assert end.exit_code == 4


def test_a_job_waits(bench: Bench) -> None:
    ref = bench.submit(resources={"requests": {"memory": "100Gi"}})
    assert bench.until(ref, lambda seen: "no match" in seen.message).phase == QUEUED
    bench.condor.cancel([ref], kill=False)
    bench.ended(ref)


def test_an_evicted_job_is_over(bench: Bench) -> None:
    ref = bench.submit(WAIT)
    bench.until(ref, lambda seen: bench.runs(ref))
    bench.site.admin("condor_vacate_job", "-fast", ref.native)
    assert bench.ended(ref).reason == "Evicted"


START_DELAY_S = 15


def test_a_job_that_its_machine_refuses_runs_later(site: RunningSite) -> None:
    """The machine gives the claim up while the schedd, which has it, cannot hear of that."""
    bench = Bench(site, shared=False, pod_annotations=["requirements"])
    on = [{"requirements": f'Machine == "{node}.{DOMAIN}"'} for node in site.nodes]

    def is_claimed() -> bool:
        slots = site.login("condor_status", site.nodes[0], "-af", "State", "Activity")
        return "Claimed Idle" in slots

    # One that starts first makes the next one wait, when that has its machine already.
    with schedd_with(site, JOB_START_COUNT=1, JOB_START_DELAY=START_DELAY_S):
        first = bench.submit("exit 3", on[1])
        eventually(lambda: bench.value(first, "NumShadowStarts") == "1")
        ref = bench.submit("echo ran; exit 4", on[0])
        eventually(is_claimed)
        site.freeze("condor_schedd")
        site.do("ctl", "condor_vacate", f"{site.nodes[0]}.{DOMAIN}")
        time.sleep(START_DELAY_S)
        site.thaw("condor_schedd")
        eventually(lambda: bench.value(ref, "NumVacates") == "1")
    assert bench.ended(ref).exit_code == 4
    assert (Path(ref.directory) / "logs" / "main.0.log").read_bytes() == b"ran\n"
    assert bench.value(ref, "NumShadowStarts", "NumJobStarts") == "2 1"
    assert bench.ended(first).exit_code == 3


def test_jobs_cannot_start_twice_without_a_shared_directory() -> None:
    build = BuildConfig(script=Script(rerun=True))
    pool = Pool(name="p", directory="/nowhere", build=build, options={"shared": False})
    with pytest.raises(ConfigError, match=r"build\.script\.rerun: must be false"):
        HTCondorBackend(pool)
    assert not os.path.exists("/nowhere")
