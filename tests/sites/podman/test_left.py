"""What jobs leave on a podman host that could not clean up after themselves."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from templates.job.model import Job
from tests.sites.podman.host import BASH, PodmanHost, job_of
from tests.unit.submitter.conformance import scripts_of
from tests.unit.submitter.conftest import Start
from tests.unit.submitter.rig import Centre, eventually


def two_containers() -> Job:
    names = ("main", "other")
    containers = [
        {"name": name, "image": BASH, "command": ["bash", "-c", "sleep 1000"]} for name in names
    ]
    return job_of(containers=containers)


def test_a_pod_whose_script_was_killed_is_removed_with_all_its_containers(
    start: Start, centre: Centre, host: PodmanHost, tmp_path: Path
) -> None:
    submitter = start()
    job = two_containers()
    centre.create(job)
    centre.until(job.name, lambda s: all(c.state.state == "running" for c in s.containers))
    eventually(lambda: len(host.containers(tmp_path)) >= 3)  # the pod, and two containers
    for pid in scripts_of(submitter.directory / "jobs" / job.name):
        os.kill(pid, signal.SIGKILL)
    centre.ended(job.name)
    eventually(lambda: not host.containers(tmp_path))
    assert host.run("podman", "pod", "ps", "--quiet") == ""


@pytest.mark.parametrize("alone", [True, False])
def test_volumes_of_an_image_go_with_its_containers(
    start: Start, centre: Centre, host: PodmanHost, tmp_path: Path, alone: bool
) -> None:
    made = host.run("podman", "create", BASH, "true").strip()
    change = ("--quiet", "--change", "VOLUME /data")
    host.run("podman", "commit", *change, made, "docker.io/tests/volume:1")
    submitter = start()
    script = "echo x >/data/x; echo up; sleep 1000"
    names = ("main",) if alone else ("main", "other")
    command = ["bash", "-c", script]
    given = [
        {"name": name, "image": "docker.io/tests/volume:1", "command": command} for name in names
    ]
    jobs = [job_of(containers=given) for _ in range(2)]
    for job in jobs:
        centre.create(job)
        eventually(lambda job=job: centre.logs(job.name) == b"up\n")
    assert len(host.run("podman", "volume", "ls", "--quiet").split()) == 2 * len(names)
    for pid in scripts_of(submitter.directory / "jobs" / jobs[0].name):
        os.kill(pid, signal.SIGKILL)
    centre.ended(jobs[0].name)
    centre.delete(jobs[1].name)
    centre.until_gone(jobs[1].name)
    eventually(lambda: not host.containers(tmp_path))
    eventually(lambda: host.run("podman", "volume", "ls", "--quiet") == "")


def test_what_nobody_remembers_is_removed_and_what_others_have_is_not(
    start: Start, centre: Centre, host: PodmanHost, tmp_path: Path
) -> None:
    """As after a restart of the machine, or when a job's directory was removed meanwhile."""
    submitter = start()
    forgotten = f"{submitter.directory}/jobs/forgotten"
    foreign = f"{tmp_path}/other/jobs/foreign"
    submitter.stop()
    for directory in (forgotten, foreign):
        label = f"interlink.directory={directory}"
        host.run("podman", "create", "--label", label, BASH, "true")
        host.run("podman", "pod", "create", "--label", label)
    mine = host.run("podman", "create", BASH, "true").strip()
    assert len(host.containers(tmp_path)) >= 4
    submitter.until_ready(centre)
    eventually(lambda: not host.containers(submitter.directory))
    assert host.containers(tmp_path / "other")
    assert mine in host.run("podman", "ps", "--all", "--quiet", "--no-trunc")


def test_a_directory_that_goes_while_the_submitter_is_down(
    start: Start, centre: Centre, host: PodmanHost, tmp_path: Path
) -> None:
    submitter = start()
    job = two_containers()
    centre.create(job)
    centre.until(job.name, lambda s: all(c.state.state == "running" for c in s.containers))
    submitter.stop(signal.SIGKILL)
    directory = submitter.directory / "jobs" / job.name
    for pid in scripts_of(directory):
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(directory)
    submitter.until_ready(centre)
    eventually(lambda: not host.containers(tmp_path))
