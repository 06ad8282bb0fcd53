"""What every batch system has to do alike, through a real submitter.

Each backend has a subclass of ``Conformance`` that says how a pool of it is configured, and passes
all of it.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any, ClassVar

import pytest

from templates.common.names import job_name
from templates.job.model import Job
from templates.job.status import ENDED, QUEUED, STARTED
from tests.support.processes import assert_none_left
from tests.unit.submitter import rig
from tests.unit.submitter.conftest import Start
from tests.unit.submitter.rig import Centre, eventually


def noting(folder: Path, then: str = "") -> str:
    """A script that adds a line to a file, so that a second run is seen."""
    return f"echo ran >>{folder}/ran; {then}"


def runs(folder: Path) -> int:
    path = folder / "ran"
    return len(path.read_text().splitlines()) if path.exists() else 0


def scripts_of(directory: Path) -> list[int]:
    """The job.sh of a job's directory, and all of its subshells."""
    found = subprocess.run(
        ["pgrep", "-f", f"bash {directory}/job.sh"], capture_output=True, text=True, check=True
    )
    return [int(line) for line in found.stdout.split()]


class Conformance:
    """The tests. They use the fixtures ``start``, ``centre`` and ``tmp_path`` of their folder."""

    pool: ClassVar[dict[str, Any]]
    """The configuration of a pool that runs several jobs at a time."""
    one_at_a_time: ClassVar[dict[str, Any]]
    """What it needs besides, so that jobs run one after the other."""
    ends_orphans: ClassVar[bool] = False
    """Whether the backend itself ends what hides from its script, or what a script leaves behind
    that was killed with -9. Others leave it to the batch system, which needs control groups for
    it: the Slurm site of the tests has none."""

    def settings(self, **more: Any) -> dict[str, Any]:
        return {**self.pool, **more}

    def job_of(self, *args: Any, **spec: Any) -> Job:
        """The job of a pod that runs a script, as ``rig.job_of`` takes it."""
        return rig.job_of(*args, **spec)

    @pytest.mark.parametrize("code", [0, 1, 7, 255])
    def test_exit_codes(self, start: Start, centre: Centre, code: int) -> None:
        start(**self.settings())
        job = self.job_of(f"exit {code}")
        centre.create(job)
        status = centre.ended(job.name)
        assert status.exit_code == code
        end = status.containers[0].state.end
        assert end is not None
        assert (end.exit_code, end.signal) == (code, 0)
        assert 0 < end.started_ms <= end.finished_ms <= status.finished_ms
        assert status.node

    def test_a_signal_that_ends_a_container(self, start: Start, centre: Centre) -> None:
        start(**self.settings())
        job = self.job_of("kill -SEGV $BASHPID")
        centre.create(job)
        end = centre.ended(job.name).containers[0].state.end
        assert end is not None
        assert (end.exit_code, end.signal) == (128 + signal.SIGSEGV, signal.SIGSEGV)

    def test_states_on_the_way(self, start: Start, centre: Centre) -> None:
        start(**self.settings())
        job = self.job_of("sleep 2")
        centre.create(job)
        running = centre.until(
            job.name, lambda status: status.containers[0].state.state == "running"
        )
        assert running.phase == STARTED
        assert running.native
        centre.ended(job.name)
        eventually(lambda: centre.heard[job.name][-1].phase == ENDED)
        versions = [status.version for status in centre.heard[job.name]]
        assert versions == sorted(versions)

    def test_a_repeated_create_runs_once(
        self, start: Start, centre: Centre, tmp_path: Path
    ) -> None:
        start(**self.settings())
        job = self.job_of(noting(tmp_path))
        assert [centre.create(job)["state"] for _ in range(3)] == ["journaled", "known", "known"]
        centre.ended(job.name)
        assert centre.create(job)["state"] == "known"
        assert runs(tmp_path) == 1

    # --- deletion ---------------------------------------------------------------------------------

    def test_a_deleted_job_gets_a_term_first(
        self, start: Start, centre: Centre, tmp_path: Path
    ) -> None:
        start(**self.settings())
        job = self.job_of(
            f"trap 'echo told >{tmp_path}/told; exit 4' TERM; while :; do sleep 0.1; done"
        )
        centre.create(job)
        centre.until(job.name, lambda status: status.containers[0].state.state == "running")
        assert centre.delete(job.name)["state"] == "cancelling"
        centre.until_gone(job.name)
        assert (tmp_path / "told").read_text() == "told\n"
        eventually(lambda: centre.gone.count(job.name) == 1)
        last = centre.heard[job.name][-1]
        assert (last.phase, last.deleting) == (ENDED, True)
        end = last.containers[0].state.end
        assert end is not None
        assert end.exit_code == 4

    def test_a_stubborn_job_is_killed_after_its_grace_period(
        self, start: Start, centre: Centre, tmp_path: Path
    ) -> None:
        start(**self.settings())
        job = self.job_of("trap '' TERM; while :; do sleep 0.1; done", grace=1)
        centre.create(job)
        centre.until(job.name, lambda status: status.containers[0].state.state == "running")
        centre.delete(job.name)
        centre.until_gone(job.name)
        assert_none_left(Path(job.name))

    def test_whatever_a_job_leaves_behind_ends_with_it(
        self, start: Start, centre: Centre, tmp_path: Path
    ) -> None:
        start(**self.settings())
        if not self.ends_orphans:
            pytest.skip("the batch system sees to it, by control groups that this machine has not")
        hiding = f"setsid env -i bash -c 'echo $BASHPID >{tmp_path}/pid; exec sleep 1000' & "
        job = self.job_of(hiding + f"while [ ! -s {tmp_path}/pid ]; do sleep 0.1; done")
        centre.create(job)
        centre.ended(job.name)
        pid = int((tmp_path / "pid").read_text())
        eventually(lambda: not Path(f"/proc/{pid}").exists())

    def test_a_job_is_deleted_while_it_waits(
        self, start: Start, centre: Centre, tmp_path: Path
    ) -> None:
        start(**self.settings(**self.one_at_a_time))
        first, second = self.job_of("sleep 1000"), self.job_of(noting(tmp_path))
        centre.create(first)
        centre.create(second)
        centre.until(second.name, lambda status: status.phase == QUEUED)
        centre.delete(second.name)
        centre.until_gone(second.name)
        centre.delete(first.name, grace=0)
        centre.until_gone(first.name)
        assert runs(tmp_path) == 0

    def test_a_create_after_its_delete_is_refused(self, start: Start, centre: Centre) -> None:
        submitter = start(**self.settings())
        job = self.job_of()
        assert centre.delete(job.name)["state"] == "gone"
        refused = centre.create(job)["refused"]
        assert (refused["code"], refused["retry"]) == ("deleted", False)
        submitter.stop(signal.SIGKILL)
        submitter.until_ready(centre)
        assert centre.create(job)["refused"]["code"] == "deleted"

    def test_a_delete_outlives_the_submitter(
        self, start: Start, centre: Centre, tmp_path: Path
    ) -> None:
        submitter = start(**self.settings())
        job = self.job_of("trap '' TERM; sleep 1000 & wait; sleep 1000", grace=2)
        centre.create(job)
        centre.until(job.name, lambda status: status.containers[0].state.state == "running")
        centre.delete(job.name)
        submitter.stop(signal.SIGKILL)
        submitter.until_ready(centre)
        centre.until_gone(job.name)
        assert_none_left(Path(job.name))

    # --- restarts ---------------------------------------------------------------------------------

    def test_jobs_outlive_the_submitter(self, start: Start, centre: Centre, tmp_path: Path) -> None:
        submitter = start(**self.settings())
        job = self.job_of(f"while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; exit 5")
        centre.create(job)
        before = centre.until(job.name, lambda s: s.containers[0].state.state == "running")
        assert submitter.stop() == 0
        submitter.until_ready(centre)
        after = centre.status(job.name)
        assert after is not None
        assert (after.native, after.version) == (before.native, before.version)
        (tmp_path / "go").touch()
        assert centre.ended(job.name).exit_code == 5

    def test_a_job_that_ends_while_nobody_looks(
        self, start: Start, centre: Centre, tmp_path: Path
    ) -> None:
        submitter = start(**self.settings())
        job = self.job_of(f"while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; exit 6")
        centre.create(job)
        centre.until(job.name, lambda s: s.containers[0].state.state == "running")
        submitter.stop(signal.SIGKILL)
        (tmp_path / "go").touch()
        records = submitter.directory / "jobs" / job.name / "records"
        eventually(lambda: b"state=finished" in records.read_bytes())
        for dropped in (submitter.directory / "spool").iterdir():
            dropped.unlink(missing_ok=True)  # as another submitter would have done by now
        submitter.until_ready(centre)
        assert centre.ended(job.name).exit_code == 6

    def test_killed_at_random_moments_nothing_is_lost_or_run_twice(
        self, start: Start, centre: Centre, tmp_path: Path
    ) -> None:
        """Every pause between two steps is hit sooner or later: the kills come at random."""
        submitter = start(**self.settings())
        chance = random.Random(uuid.uuid4().int)
        jobs = []
        for number in range(24):
            folder = tmp_path / f"out-{number}"
            folder.mkdir()
            job = self.job_of(noting(folder, f"exit {number}"))
            jobs.append((number, folder, job))
            centre.create(job)
            if number % 4 == 3:
                time.sleep(chance.uniform(0, 0.3))
                submitter.stop(signal.SIGKILL)
                submitter.until_ready(centre)
        for number, folder, job in jobs:
            assert centre.ended(job.name).exit_code == number
            assert runs(folder) == 1

    def test_two_submitters_share_a_pool(
        self, start: Start, centre: Centre, tmp_path: Path
    ) -> None:
        first, second = (start(**self.settings()) for _ in range(2))
        folders = {}
        for number in range(16):
            folder = tmp_path / f"out-{number}"
            folder.mkdir()
            job = self.job_of(noting(folder, f"exit {number}"))
            folders[job.name] = (number, folder)
            assert centre.insist(job) in {"journaled", "known"}
            if number == 8:
                first.stop(signal.SIGKILL)
        for name, (number, folder) in folders.items():
            assert centre.ended(name).exit_code == number
            assert runs(folder) == 1
        first.until_ready(centre)
        second.stop(signal.SIGKILL)
        answer = centre.query(everything=True)
        assert {status.job: status.exit_code for status in answer.states} == {
            name: number for name, (number, _) in folders.items()
        }
        for name in folders:
            centre.delete(name)
        eventually(lambda: centre.query(everything=True).jobs == 0)

    # --- trouble ----------------------------------------------------------------------------------

    def test_a_killed_job_ends_with_words(
        self, start: Start, centre: Centre, tmp_path: Path
    ) -> None:
        submitter = start(**self.settings())
        job = self.job_of(f"echo $BASHPID >{tmp_path}/pid; sleep 1000")
        centre.create(job)
        centre.until(job.name, lambda s: s.containers[0].state.state == "running")
        directory = submitter.directory / "jobs" / job.name
        for line in scripts_of(directory):
            os.kill(line, signal.SIGKILL)
        status = centre.ended(job.name)
        assert status.exit_code != 0
        assert "without a record of its end" in status.message
        eventually(lambda: not (directory / "secret").exists())
        if self.ends_orphans:
            assert_none_left(Path(job.name))

    def test_a_directory_that_is_removed_by_hand(
        self, start: Start, centre: Centre, tmp_path: Path
    ) -> None:
        submitter = start(**self.settings())
        job = self.job_of(noting(tmp_path, "sleep 1000"))
        centre.create(job)
        centre.until(job.name, lambda s: s.containers[0].state.state == "running")
        directory = submitter.directory / "jobs" / job.name
        # The job may write one more line where something is being removed.
        eventually(lambda: subprocess.run(["rm", "-rf", directory], check=False).returncode == 0)
        status = centre.ended(job.name)
        assert status.exit_code == 1
        assert "directory was removed" in status.message
        assert_none_left(Path(job.name))
        centre.create(job)
        assert runs(tmp_path) == 1
        centre.delete(job.name)
        centre.until_gone(job.name)

    def test_the_queue_keeps_its_order(self, start: Start, centre: Centre, tmp_path: Path) -> None:
        start(**self.settings(**self.one_at_a_time))
        jobs = [self.job_of(f"echo {number} >>{tmp_path}/order") for number in range(5)]
        for job in jobs:
            centre.create(job)
        for job in jobs:
            centre.ended(job.name)
        assert (tmp_path / "order").read_text().split() == ["0", "1", "2", "3", "4"]

    def test_a_name_says_which_job_it_is(self, start: Start, centre: Centre) -> None:
        start(**self.settings())
        job = self.job_of()
        other = self.job_of(name="another", uid=job.uid)
        assert other.name == job_name("another", job.uid)
        centre.create(job)
        centre.create(other)
        assert {centre.ended(one.name).job for one in (job, other)} == {job.name, other.name}
