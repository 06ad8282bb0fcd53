"""kill -9 of anything through many pods: none lost, none run twice, none told wrong, nothing left.

``KUBERNETES_PODS`` says how many pods, ``KUBERNETES_SEED`` begins the same row of kills again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Optional, TypeVar

import pytest

from templates.job.model import Job
from templates.job.status import ENDED, JobStatus
from templates.nats.requests import LinkError
from templates.site.build_config import BuildConfig, HostPath, Runtime, Volumes
from tests.e2e.trouble import Fault, Trouble, killed
from tests.sites.kubernetes.pool import IMAGE, Cluster, job_of, witness
from tests.support.kueue_bed import until
from tests.support.nats_server import NatsServer
from tests.unit.submitter.rig import Centre, Submitter, eventually

logger = logging.getLogger(__name__)
PODS = int(os.environ.get("KUBERNETES_PODS", "60"))
SEED = int(os.environ.get("KUBERNETES_SEED", "0")) or random.randrange(1, 10**6)
AT_ONCE = 20  # what the namespace's quota allows; the others wait with the submitters
STUCK_S = 180  # longer than any time-out of any program
PROGRAMS = ("apiserver", "controller-manager", "etcd", "scheduler", "kueue", "kubelet")
KINDS = "pods,secrets,configmaps"
Answer = TypeVar("Answer")


class Wanted:
    """A job, and what it must come to."""

    def __init__(self, number: int, folder: Path) -> None:
        self.code = number % 7
        self.output = b"settings of %d\nvalue of %d\n" % (number, number)
        self.runs = folder / str(number)
        script = f"echo ran >>{self.runs}; cat /cfg/file; echo $VALUE; exit {self.code}"
        settings = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "settings"},
            "data": {"file": f"settings of {number}\n"},
        }
        main = {
            "name": "main",
            "image": IMAGE,
            "command": ["bash", "-c", f"sleep 0.{number % 10}; {script}"],
            "env": [{"name": "VALUE", "value": f"value of {number}"}],
            "volumeMounts": [
                {"name": "witness", "mountPath": str(folder)},
                {"name": "settings", "mountPath": "/cfg"},
            ],
        }
        volumes = [
            {"name": "witness", "hostPath": {"path": str(folder)}},
            {"name": "settings", "configMap": {"name": "settings"}},
        ]
        config = BuildConfig(
            runtime=Runtime("kubernetes"), volumes=Volumes(host_paths=(HostPath(str(folder)),))
        )
        spec: dict[str, Any] = {"containers": [main], "volumes": volumes}
        self.job: Job = job_of(name=f"k{number}", config=config, objects=[settings], **spec)

    def wrong(self, status: JobStatus, centre: Centre) -> str:
        """What is wrong with its end and with all that was told of it; empty if nothing is."""
        name = self.job.name
        told = [one for one in (*centre.heard.get(name, ()), status) if one.phase == ENDED]
        codes = {one.exit_code for one in told}
        ran = self.runs.read_text().split() if self.runs.exists() else []
        said = patiently(lambda: centre.logs(name))
        if codes != {self.code} or ran != ["ran"] or said != self.output:
            return f"{name}: {codes} not {self.code}, {ran}, {said!r}: {status.message}"
        return ""


def patiently(ask: Callable[[], Answer]) -> Answer:
    """Ask until there is an answer: both submitters may be away, or the one that begins one."""

    def attempt() -> Optional[list[Answer]]:
        with contextlib.suppress(AssertionError, LinkError, TimeoutError):
            return [ask()]
        return None

    return eventually(attempt, STUCK_S)[0]


class Crowd:
    """All of them: they come, are looked at when they have ended, and go."""

    def __init__(self, centre: Centre, folder: Path) -> None:
        self._centre = centre
        self.left = {wanted.job.name: wanted for wanted in (Wanted(n, folder) for n in range(PODS))}
        self.ended = 0
        self.wrong: list[str] = []

    def create(self) -> None:
        for wanted in self.left.values():
            state = patiently(partial(self._centre.insist, wanted.job))
            assert state in ("journaled", "known")

    def until_ended(self, count: int) -> None:
        """For as long as anything moves."""
        end = time.monotonic() + STUCK_S
        while self.ended < count:
            for status in patiently(lambda: self._centre.query(*self.left)).states:
                if status.phase == ENDED:
                    self._take_leave(status)
                    end = time.monotonic() + STUCK_S
            words = f"{self.ended} of {PODS} have ended, and no other for {STUCK_S} s"
            assert time.monotonic() < end, f"{words}: {list(self.left)[:5]}"
            time.sleep(0.2)

    def _take_leave(self, status: JobStatus) -> None:
        wrong = self.left.pop(status.job).wrong(status, self._centre)
        self.wrong += [wrong] if wrong else []
        patiently(lambda: self._centre.delete(status.job))
        self.ended += 1


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    name = cluster.namespace(strict=False, pods=AT_ONCE)
    yield name
    cluster.bed.kubectl("delete", "namespace", name, "--wait=false")


def test_every_pod_ends_as_it_should_and_leaves_nothing_whatever_is_killed(
    nats: NatsServer, centre: Centre, cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    folder = witness(cluster.bed)
    pool = cluster.pool(namespace, policy={"host_paths": [str(folder)]})
    submitters = [Submitter(nats, tmp_path, **pool).until_ready(centre) for _ in range(2)]
    faults = killed(cluster.bed, *PROGRAMS)
    for number, one in enumerate(submitters):
        faults.append(
            Fault(f"submitter {number}", lambda one=one: one.stop(signal.SIGKILL), one.start)
        )
    crowd = Crowd(centre, folder)
    try:
        with Trouble(cluster.bed, faults, SEED) as trouble:
            crowd.create()
            crowd.until_ended(PODS * 9 // 10)
            until(lambda: trouble.has_had_all, 300, "one kill of each")
        crowd.until_ended(PODS)
        said = f"seed {SEED}: {PODS} pods, {trouble}"
        logger.warning("%s", said)
        assert not crowd.wrong, "\n".join([said, *crowd.wrong])
        until(lambda: not cluster.names(namespace, KINDS), 120, "the end of all that was made")
        jobs = submitters[0].directory / "jobs"
        until(lambda: not list(jobs.iterdir()), 60, f"the end of what is in {jobs}")
    finally:
        for one in submitters:
            if one.process is not None:
                one.stop(signal.SIGKILL)
