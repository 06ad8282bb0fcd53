"""Trouble at a site while pods come and go: nothing is lost, nothing runs twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.sites.slurm.site import USER_ID, SlurmSite, until
from tests.sites.slurm.system import TIMING, SlurmSystem, system_at
from tests.support.system import job_of

WAIT = "while :; do sleep 0.2; done"


@pytest.fixture(scope="module")
def the_system(
    the_site: SlurmSite, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SlurmSystem]:
    pool = {"build": {"runtime": {"name": "host"}}, "timing": {**TIMING, "lost_after_s": 20}}
    with system_at(the_site, tmp_path_factory.mktemp("trouble"), pool=pool) as system:
        yield system


@pytest.fixture
def system(the_system: SlurmSystem, site: SlurmSite) -> SlurmSystem:
    return the_system


def noting(system: SlurmSystem, name: str, then: str = "true") -> str:
    """A script that leaves a line whenever it runs."""
    return f"echo ran >>{system.slurm.home}/{name}; {then}"


def runs(system: SlurmSystem, name: str) -> int:
    path = system.slurm.home / name
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_slurmctld_is_away_for_a_while(system: SlurmSystem) -> None:
    """What runs goes on, what ends is seen, what comes in waits for it, and runs once."""
    go = system.slurm.home / "go"
    ending = system.run(f"until [ -e {go} ]; do sleep 0.1; done; exit 5")
    going = system.run(WAIT)
    for pod in (ending, going):
        system.until_running(pod)
    system.slurm.until_saved()
    system.slurm.kill("slurmctld")
    new = system.run(noting(system, "new", "exit 6"))
    words = "Unable to contact slurm controller"
    system.until(lambda: words in str(system.state(new)), "its pod says so", 60)
    go.touch()
    assert system.end(ending) == (5, "")
    assert "running" in system.state(going)
    doomed = system.run(noting(system, "doomed"))
    system.plugin.delete(doomed)
    system.slurm.start("slurmctld")
    assert system.end(new) == (6, "")
    assert runs(system, "new") == 1
    assert len(system.numbers(new)) == 1
    assert "running" in system.state(going)
    until(lambda: not system.directory(doomed).exists(), 60, "the deleted one is gone")
    assert runs(system, "doomed") == 0


def test_a_submission_that_is_taken_and_not_answered(system: SlurmSystem) -> None:
    """sbatch gives up, Slurm takes the job all the same: it is found by its name and adopted."""
    system.slurm.freeze("slurmctld")
    pod = system.run(noting(system, "adopted", "exit 4"))
    until(lambda: "timed out" in str(system.state(pod)), 60, "sbatch gives up")
    system.slurm.thaw("slurmctld")
    assert system.end(pod, 120) == (4, "")
    assert runs(system, "adopted") == 1
    rows = system.slurm.admin("sacct", "-nPX", f"--name={job_of(pod)}", "-o", "jobid").split()
    assert rows == system.numbers(pod)
    assert len(rows) == 1


@pytest.mark.parametrize("mode", ["700", "555"])
def test_a_node_that_does_not_see_new_files_yet(system: SlurmSystem, mode: str) -> None:
    """Not even the job's directory is there: the node makes one for Slurm's output, or cannot."""
    name, folder = f"late-{mode}", str(system.site / "site-a" / "jobs")
    options = f"mode={mode},uid={USER_ID}"
    system.slurm.do("n1", "mount", "-t", "tmpfs", "-o", options, "tmpfs", folder)
    try:
        pod = system.run(noting(system, name, "exit 3"), says={"flags": "-w n1"})
        until(lambda: system.numbers(pod), 30, "a job")
        if mode == "700":
            system.slurm.until(system.numbers(pod)[0], "RUNNING")
        else:
            system.until(lambda: len(system.numbers(pod)) > 1, "it is submitted again", 60)
    finally:
        system.slurm.do("n1", "umount", "-l", folder)
    assert system.end(pod) == (3, "")
    assert runs(system, name) == 1
    assert (len(system.numbers(pod)) > 1) is (mode == "555")


def test_a_script_that_comes_later_than_its_directory(system: SlurmSystem) -> None:
    pod = system.run(noting(system, "later", "exit 2"), says={"flags": "--hold"})
    system.waits(pod, "Held")
    script = system.directory(pod) / "job.sh"
    script.rename(script.with_suffix(".late"))
    (number,) = system.numbers(pod)
    system.slurm.admin("scontrol", "release", number)
    system.slurm.until(number, "RUNNING")
    script.with_suffix(".late").rename(script)
    assert system.end(pod) == (2, "")
    assert runs(system, "later") == 1


def test_accounts_that_are_away(system: SlurmSystem) -> None:
    """Ends that only the accounts would tell are told by the controller."""
    pod: dict[str, Any] = system.run("trap '' TERM; " + WAIT)
    number = system.until_running(pod)
    system.slurm.kill("slurmdbd")
    system.slurm.admin("scancel", "--full", "--signal=KILL", number)
    code, message = system.end(pod)
    assert code != 0
    assert "Slurm: " in message


def test_the_network_is_away(system: SlurmSystem) -> None:
    """A login node that is cut off loses nothing of what ends meanwhile."""
    pods = [system.run(f"sleep 3; exit {code}") for code in range(3)]
    system.until(lambda: all(map(system.numbers, pods)), "all are in the queue")
    numbers = [number for pod in pods for number in system.numbers(pod)]
    system.slurm.unplug("outside")
    for number in numbers:
        system.slurm.until(number, "COMPLETED", "FAILED")
    system.slurm.plug("outside")
    assert [system.end(pod)[0] for pod in pods] == [0, 1, 2]
