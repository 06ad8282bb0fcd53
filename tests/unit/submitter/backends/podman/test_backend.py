"""The podman backend: what it asks podman for, however many jobs there are.

The stand-in for podman answers from a file, and notes what it is asked.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from submitter.backends.host.processes import JobProcesses
from submitter.backends.podman.backend import PodmanBackend
from submitter.common.errors import BackendUnavailable
from submitter.config.settings import Pool
from templates.common.errors import ConfigError
from templates.site.build_config import BuildConfig, Runtime

STAND_IN = """#!/bin/bash
echo "$*" >>FOLDER/asked
case $1 in
ps) cat FOLDER/containers ;;
pod) [ "$2" != ps ] || cat FOLDER/pods ;;
esac
"""


def backend(folder: Path, runtime: str = "podman") -> PodmanBackend:
    program = folder / "podman"
    program.write_text(STAND_IN.replace("FOLDER", str(folder)))
    program.chmod(0o755)
    for name in ("containers", "pods", "asked"):
        (folder / name).touch()
    (folder / "jobs").mkdir()
    build = BuildConfig(runtime=Runtime(runtime, str(program)))
    return PodmanBackend(Pool("p", str(folder), "podman", build=build))


def asked(folder: Path) -> list[str]:
    return (folder / "asked").read_text().splitlines()


def test_it_wants_its_runtime(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        backend(tmp_path, "apptainer")
    assert str(caught.value) == (
        "pool p: build.runtime.name: must be podman, as the backend is, not apptainer"
    )


def test_the_ends_of_a_thousand_jobs_cost_as_many_calls_as_that_of_one(tmp_path: Path) -> None:
    podman = backend(tmp_path)
    names = [f"job-{number}" for number in range(1000)]
    rows = [f"id{number} {tmp_path}/jobs/{name}" for number, name in enumerate(names)]
    (tmp_path / "containers").write_text("\n".join([*rows, f"foreign {tmp_path}/other/jobs/x"]))
    (tmp_path / "pods").write_text(f"pod {tmp_path}/jobs/job-7\n")
    gone = podman.kill_jobs({name: JobProcesses(None, "") for name in names})
    assert gone == set(names)
    calls = asked(tmp_path)
    assert [line.split(" -")[0] for line in calls] == ["pod ps", "pod rm", "ps", "rm"]
    assert calls[1].endswith(" --time 0 pod")
    assert calls[3].split()[-1] == "id999"
    assert "foreign" not in calls[3]


def test_nothing_is_asked_for_jobs_that_run(tmp_path: Path) -> None:
    podman = backend(tmp_path)
    assert podman.poll([]) == {}
    assert podman.clean([]) == set()
    assert asked(tmp_path) == []


def test_what_is_left_of_jobs_that_are_gone_is_removed(tmp_path: Path) -> None:
    podman = backend(tmp_path)
    (tmp_path / "jobs" / "known").mkdir()
    rows = [f"a {tmp_path}/jobs/known", f"b {tmp_path}/jobs/gone", "c /elsewhere/jobs/gone"]
    (tmp_path / "containers").write_text("\n".join(rows))
    podman.tidy()
    assert [line for line in asked(tmp_path) if line.startswith("rm")] == [
        "rm --force --ignore --time 0 --volumes b"
    ]


def test_podman_that_does_not_answer_changes_nothing(tmp_path: Path) -> None:
    podman = backend(tmp_path)
    (tmp_path / "podman").write_text("#!/bin/bash\necho no store >&2; exit 125\n")
    with pytest.raises(BackendUnavailable, match="exit code 125: no store"):
        podman.tidy()
