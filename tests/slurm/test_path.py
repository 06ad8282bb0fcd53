"""From interLink's request to a job under Slurm and Apptainer, and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.slurm_site import SlurmSite
from tests.slurm_system import SlurmSystem, pod_of, system_at
from tests.system import job_of


@pytest.fixture(scope="module")
def the_system(
    the_site: SlurmSite, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SlurmSystem]:
    with system_at(the_site, tmp_path_factory.mktemp("system")) as system:
        yield system


@pytest.fixture
def system(the_system: SlurmSystem, site: SlurmSite) -> SlurmSystem:
    return the_system


def run(system: SlurmSystem, *commands: str, **spec: Any) -> dict[str, Any]:
    request = pod_of(*commands, **spec)
    system.plugin.create(request)
    pod: dict[str, Any] = request["pod"]
    return pod


def test_a_pod_runs_under_slurm_and_apptainer(system: SlurmSystem) -> None:
    pod = run(system, "echo $SLURM_JOB_ID; ls -d /.singularity.d; exit 3", "echo second")
    ends = system.ended(pod, 60)
    assert [end["exitCode"] for end in ends] == [3, 0]
    number, *rest = system.log(pod).decode().split()
    assert number.isdigit()
    assert rest == ["/.singularity.d"]
    assert system.log(pod, "c1") == b"second\n"
    told = system.slurm.admin("sacct", "-nPX", "-j", number, "-o", "JobName,State,User")
    assert told.strip() == f"{job_of(pod)}|FAILED|alice"
