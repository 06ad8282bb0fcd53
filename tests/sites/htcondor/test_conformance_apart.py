"""As in ``test_conformance.py``, where the machines see nothing of the submitter's files."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.sites.htcondor.apart import *  # noqa: F403 - its fixtures are used here
from tests.sites.htcondor.site import RunningSite
from tests.unit.submitter.conformance import Conformance
from tests.unit.submitter.conftest import Start
from tests.unit.submitter.rig import Centre, eventually


@pytest.fixture(scope="session")
def the_site(the_apart_site: RunningSite) -> RunningSite:
    return the_apart_site


@pytest.fixture
def options() -> dict[str, Any]:
    return {"shared": False}


class TestApart(Conformance):
    pool = {"backend": "htcondor"}
    one_at_a_time = {"options": {"commands": {"concurrency_limits": "one"}}}

    # --- two tests that look at what such a job has not -------------------------------------------

    def test_a_job_that_ends_while_nobody_looks(
        self, start: Start, centre: Centre, tmp_path: Path
    ) -> None:
        submitter = start(**self.settings())
        job = self.job_of(f"while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; exit 6")
        centre.create(job)
        centre.until(job.name, lambda s: s.containers[0].state.state == "running")
        submitter.stop(signal.SIGKILL)
        (tmp_path / "go").touch()
        stream = submitter.directory / "jobs" / job.name / "stream"
        eventually(lambda: b"state=finished" in stream.read_bytes())
        for dropped in (submitter.directory / "spool").iterdir():
            dropped.unlink()  # as another submitter would have done by now
        submitter.until_ready(centre)
        assert centre.ended(job.name).exit_code == 6

    def test_a_killed_job_ends_with_words(self, start: Start, centre: Centre) -> None:
        submitter = start(**self.settings())
        job = self.job_of("sleep 1000")
        centre.create(job)
        centre.until(job.name, lambda s: s.containers[0].state.state == "running")
        found = subprocess.run(
            ["pgrep", "-f", "bash /var/lib/condor/execute/.*/job/job.sh"],
            capture_output=True,
            text=True,
            check=True,
        )
        ours = [pid for pid in map(int, found.stdout.split()) if _is_of(pid, job.name)]
        for pid in ours:
            os.kill(pid, signal.SIGKILL)
        status = centre.ended(job.name)
        assert status.exit_code != 0
        assert "without a record of its end" in status.message
        directory = submitter.directory / "jobs" / job.name
        eventually(lambda: not (directory / "secret").exists())
        eventually(lambda: not (directory / "input.tar").exists())


def _is_of(pid: int, job: str) -> bool:
    """Whether it is a process of this job: other sites of this machine have some, too."""
    return job.encode() in Path(f"/proc/{pid}/environ").read_bytes()
