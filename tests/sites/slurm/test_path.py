"""From interLink's request to a job under Slurm and Apptainer, and back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scripts.lib.interlink import Answer
from tests.sites.slurm.site import SlurmSite
from tests.sites.slurm.system import ALL_ANNOTATIONS, OWN_IMAGES, SlurmSystem, system_at
from tests.support.system import job_of

FOLDERS = ("/usr", "/lib", "/lib64", "/etc/openmpi")  # that have the site's MPI


@pytest.fixture(scope="module")
def the_system(
    the_site: SlurmSite, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SlurmSystem]:
    build = {"runtime": {"name": "apptainer"}, "rules": ALL_ANNOTATIONS}
    pool = {"build": build, "policy": {"images": OWN_IMAGES, "host_paths": [*FOLDERS]}}
    with system_at(the_site, tmp_path_factory.mktemp("system"), pool=pool) as system:
        yield system


@pytest.fixture
def system(the_system: SlurmSystem, site: SlurmSite) -> SlurmSystem:
    return the_system


def test_a_pod_runs_under_slurm_and_apptainer(system: SlurmSystem) -> None:
    pod = system.run("echo $SLURM_JOB_ID; ls -d /.singularity.d; exit 3", "echo second")
    ends = system.ended(pod, 60)
    assert [end["exitCode"] for end in ends] == [3, 0]
    number, *rest = system.log(pod).decode().split()
    assert number.isdigit()
    assert rest == ["/.singularity.d"]
    assert system.log(pod, "c1") == b"second\n"
    told = system.slurm.admin("sacct", "-nPX", "-j", number, "-o", "JobName,State,User")
    assert told.strip() == f"{job_of(pod)}|FAILED|alice"


def test_two_ranks_of_an_mpi_program_in_containers(system: SlurmSystem) -> None:
    """The site's own MPI is bound in, as users of such sites do it."""
    says = {
        "flags": "--ntasks=2 --time=5",
        "mpi-flags": "",
        "singularity-mounts": " ".join(f"--bind {folder}:{folder}:ro" for folder in FOLDERS),
    }
    pod = system.run("exec /usr/local/bin/mpi-hello", says=says)
    ends = system.ended(pod, 60)
    log = system.log(pod).decode()
    assert [end["exitCode"] for end in ends] == [0], log
    ranks = sorted(line.split(" on ")[0] for line in log.splitlines())
    assert ranks == ["rank 0 of 2", "rank 1 of 2"], log


def test_what_a_site_does_not_give_is_refused_in_one_line(system: SlurmSystem) -> None:
    with pytest.raises(Answer) as refused:
        system.run("true", says={"flags": "--array=1-5"})
    assert refused.value.status == 403
    assert "the annotation flags: --array cannot be used here: a pod is one job" in str(
        refused.value
    )
    with pytest.raises(Answer) as wrong:
        system.run("true", says={"mpi-flags": "--bind 'socket"})
    assert "mpi-flags" in str(wrong.value)


def test_a_deleted_pod_leaves_the_queue_and_its_directory(system: SlurmSystem) -> None:
    pod = system.run("trap 'exit 0' TERM; while :; do sleep 0.1; done")
    system.until(lambda: "running" in str(system.status(pod)), "it runs", 60)
    system.plugin.delete(pod)
    system.until(lambda: not system.directory(pod).exists(), "nothing is left", 60)
    # Its script has said that it is over; Slurm hears of its end a moment later.
    system.until(lambda: system.slurm.admin("squeue", "-h") == "", "the queue is empty", 60)
