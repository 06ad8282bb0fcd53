"""When the end of a container is told: before podman has cleaned up after it, or in its words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from templates.job.model import Job
from tests.sites.podman.host import CONFIG, PodmanHost, job_of
from tests.unit.submitter.conftest import Start
from tests.unit.submitter.rig import Centre, eventually

# In podman's place: "run" ends only when it may, and with an exit code of its own, if it has one.
LATE = """#!/bin/bash
[ "$1" = run ] || exec podman "$@"
podman "$@"
code=$?
: >FOLDER/over
until [ -e FOLDER/go ]; do sleep 0.1; done
read -r code 2>/dev/null <FOLDER/code
exit "$code"
"""


def with_late_podman(folder: Path, script: str, **spec: object) -> Job:
    program = folder / "podman"
    program.write_text(LATE.replace("FOLDER", str(folder)))
    program.chmod(0o755)
    runtime = replace(CONFIG.runtime, executable=str(program))
    return job_of(script, config=replace(CONFIG, runtime=runtime), **spec)  # type: ignore[arg-type]


def test_a_good_end_is_told_while_podman_cleans_up_and_the_job_waits_for_that(
    start: Start, centre: Centre, host: PodmanHost, tmp_path: Path
) -> None:
    submitter = start()
    host.own(tmp_path)
    job = with_late_podman(tmp_path, "for i in 1 2 3; do echo $i; echo $i >&2; done")
    centre.create(job)
    status = centre.ended(job.name)
    assert not (tmp_path / "go").exists()
    assert status.exit_code == 0
    end = status.containers[0].state.end
    assert end is not None
    assert (end.exit_code, end.reason) == (0, "Completed")
    assert centre.logs(job.name) == b"1\n1\n2\n2\n3\n3\n"
    eventually((tmp_path / "over").exists)
    assert (submitter.directory / "running" / job.name).exists()
    (tmp_path / "go").touch()
    eventually(lambda: not (submitter.directory / "running" / job.name).exists())
    assert not host.containers(tmp_path)


def test_an_init_containers_end_is_podmans(
    start: Start, centre: Centre, host: PodmanHost, tmp_path: Path
) -> None:
    """The next container starts when nothing is left of the one before it."""
    start()
    host.own(tmp_path)
    first = {"name": "first", "image": "none", "command": ["bash", "-c", "exit 0"]}
    job = with_late_podman(tmp_path, "exit 0", initContainers=[first])
    centre.create(job)
    eventually((tmp_path / "over").exists)
    status = centre.until(job.name, lambda s: s.containers[0].state.state != "waiting")
    assert [one.state.state for one in status.containers] == ["running", "waiting"]
    (tmp_path / "go").touch()
    assert centre.ended(job.name).exit_code == 0
    eventually(lambda: not host.containers(tmp_path))


def test_any_other_end_is_told_in_podmans_words(
    start: Start, centre: Centre, host: PodmanHost, tmp_path: Path
) -> None:
    start()
    host.own(tmp_path)
    (tmp_path / "code").write_text("126\n")
    (tmp_path / "go").touch()
    job = with_late_podman(tmp_path, "exit 3")
    centre.create(job)
    end = centre.ended(job.name).containers[0].state.end
    assert end is not None
    assert (end.exit_code, end.reason) == (126, "Error")
    eventually(lambda: not host.containers(tmp_path))


def test_a_pod_of_several_containers_leaves_nothing_after_an_early_end(
    start: Start, centre: Centre, host: PodmanHost, tmp_path: Path
) -> None:
    """Its init container makes it a podman pod; only its last container's end is told early."""
    start()
    first = {"name": "first", "image": "none", "command": ["bash", "-c", "echo first"]}
    jobs = [job_of("echo main", initContainers=[first]) for _ in range(3)]
    for job in jobs:
        centre.create(job)
    for job in jobs:
        assert centre.ended(job.name).exit_code == 0
        assert centre.logs(job.name, "first") == b"first\n"
        assert centre.logs(job.name) == b"main\n"
    eventually(lambda: not host.containers(tmp_path))
