"""What every batch system has to do alike, in a real cluster."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from templates.job.model import Job
from tests.sites.kubernetes.pool import Cluster, job_with, witness
from tests.support.nats_server import NatsServer
from tests.unit.submitter.conformance import Conformance
from tests.unit.submitter.conftest import Start
from tests.unit.submitter.rig import Centre, Submitter, eventually, kill


@pytest.fixture
def tmp_path(cluster: Cluster) -> Path:
    """A folder that pods can write into, too."""
    return witness(cluster.bed)


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    name = cluster.namespace(strict=False)
    yield name
    cluster.bed.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def start(
    nats: NatsServer, centre: Centre, cluster: Cluster, namespace: str, tmp_path: Path
) -> Iterator[Start]:
    started: list[Submitter] = []

    def start_one(**pool: object) -> Submitter:
        if "labels" in pool:
            cluster.quota(namespace, {"pods": "1"})
        policy = {"host_paths": [str(tmp_path)]}
        one = Submitter(nats, tmp_path, **cluster.pool(namespace, policy=policy, **pool))
        started.append(one)
        return one.until_ready(centre)

    yield start_one
    kill(started)


class TestKubernetes(Conformance):
    pool: ClassVar[dict[str, Any]] = {}
    one_at_a_time = {"labels": {"pods": "1"}}  # see start, above

    @pytest.fixture(autouse=True)
    def in_a_cluster(self, tmp_path: Path) -> None:
        """Jobs are pods there; the folder is mounted in each of them."""
        self.folder = tmp_path

    def job_of(self, *args: Any, **spec: Any) -> Job:
        return job_with(self.folder)(*args, **spec)

    # --- tests that look at what such a job has not -----------------------------------------------

    def test_a_signal_that_ends_a_container(self, start: Start, centre: Centre) -> None:
        """The first process of a container is safe from its own signals."""
        start(**self.settings())
        job = self.job_of("bash -c 'kill -SEGV $BASHPID'; exit $?")
        centre.create(job)
        end = centre.ended(job.name, 60).containers[0].state.end
        assert end is not None
        assert (end.exit_code, end.signal) == (128 + signal.SIGSEGV, signal.SIGSEGV)

    def test_whatever_a_job_leaves_behind_ends_with_it(
        self, start: Start, centre: Centre, cluster: Cluster, namespace: str
    ) -> None:
        start(**self.settings())
        job = self.job_of("sleep 1000 & exit 0")
        centre.create(job)
        centre.ended(job.name, 60)
        eventually(lambda: not cluster.names(namespace, "pods,secrets,configmaps"))

    def test_a_job_that_ends_while_nobody_looks(
        self, start: Start, centre: Centre, tmp_path: Path, cluster: Cluster, namespace: str
    ) -> None:
        submitter = start(**self.settings())
        job = self.job_of(f"while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; exit 6")
        centre.create(job)
        centre.until(job.name, lambda s: s.containers[0].state.state == "running", 60)
        submitter.stop(signal.SIGKILL)
        (tmp_path / "go").touch()
        eventually(lambda: cluster.pod(namespace, job.name)["status"]["phase"] == "Failed")
        submitter.until_ready(centre)
        assert centre.ended(job.name).exit_code == 6

    def test_a_killed_job_ends_with_words(
        self, start: Start, centre: Centre, cluster: Cluster, namespace: str
    ) -> None:
        submitter = start(**self.settings())
        job = self.job_of("sleep 1000")
        centre.create(job)
        centre.until(job.name, lambda s: s.containers[0].state.state == "running", 60)
        words = ("delete", "pod", job.name, "--namespace", namespace, "--force", "--grace-period=0")
        cluster.bed.kubectl(*words)
        status = centre.ended(job.name)
        assert status.exit_code != 0
        assert "without a record of its end" in status.message
        directory = submitter.directory / "jobs" / job.name
        eventually(lambda: not (directory / "secret").exists())
        assert json.loads((directory / "final").read_text())["phase"] == "ended"
