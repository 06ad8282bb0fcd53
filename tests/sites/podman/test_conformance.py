"""What every batch system has to do alike, on a real podman host, by submitters of its user."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.sites.podman import host as podman_host
from tests.sites.podman.host import PodmanHost
from tests.unit.submitter.conformance import Conformance, scripts_of
from tests.unit.submitter.conftest import Start
from tests.unit.submitter.rig import Centre, eventually


class TestPodman(Conformance):
    pool = {"options": {"cpu": "8", "pods": "8"}}
    one_at_a_time = {"options": {"pods": "1"}}
    job_of = staticmethod(podman_host.job_of)  # jobs are pods here, not plain processes

    # --- tests that look at what is different in a container --------------------------------------

    def test_a_signal_that_ends_a_container(self, start: Start, centre: Centre) -> None:
        """The first process of a container is safe from its own signals, as in Kubernetes."""
        start(**self.settings())
        job = self.job_of("bash -c 'kill -SEGV $BASHPID'; exit $?")
        centre.create(job)
        end = centre.ended(job.name).containers[0].state.end
        assert end is not None
        assert (end.exit_code, end.signal) == (128 + signal.SIGSEGV, signal.SIGSEGV)

    def test_whatever_a_job_leaves_behind_ends_with_it(
        self, start: Start, centre: Centre, tmp_path: Path, host: PodmanHost
    ) -> None:
        start(**self.settings())
        mark = tmp_path.name
        job = self.job_of(f"setsid env -i bash -c 'exec -a {mark} sleep 1000' & sleep 0.5")
        centre.create(job)
        centre.ended(job.name)
        eventually(lambda: host.try_to("pgrep", "-f", f"^{mark}").returncode == 1)
        eventually(lambda: not host.containers(tmp_path))

    def test_a_killed_job_ends_with_words(
        self, start: Start, centre: Centre, tmp_path: Path, host: PodmanHost
    ) -> None:
        submitter = start(**self.settings())
        job = self.job_of("sleep 1000")
        centre.create(job)
        centre.until(job.name, lambda s: s.containers[0].state.state == "running")
        eventually(lambda: host.containers(tmp_path))
        directory = submitter.directory / "jobs" / job.name
        for pid in scripts_of(directory):
            os.kill(pid, signal.SIGKILL)
        status = centre.ended(job.name)
        assert status.exit_code != 0
        assert "without a record of its end" in status.message
        eventually(lambda: not (directory / "secret").exists())
        eventually(lambda: not host.containers(tmp_path))
