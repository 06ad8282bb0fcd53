"""Pods that wait in a queue of the far cluster's own Kueue, one after the other."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from templates.job.model import Job
from templates.job.status import ENDED, QUEUED
from templates.site.build_config import KubernetesRuntime
from tests.sites.kubernetes.pool import CONFIG, Cluster, job_of
from tests.support.kueue_bed import until
from tests.unit.submitter.rig import Centre, Submitter, eventually

QUEUE = "batch"
GATED = "SchedulingGated"
KUEUE = {"apiVersion": "kueue.x-k8s.io/v1beta1"}

Create = Callable[..., Job]


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> Iterator[str]:
    """One with a LocalQueue, through which one pod comes at a time."""
    name = cluster.namespace()
    resources = [
        {"name": "cpu", "nominalQuota": "8"},
        {"name": "memory", "nominalQuota": "8Gi"},
        {"name": "pods", "nominalQuota": "1"},
    ]
    group = {
        "coveredResources": [resource["name"] for resource in resources],
        "flavors": [{"name": name, "resources": resources}],
    }
    cluster.bed.apply(
        {**KUEUE, "kind": "ResourceFlavor", "metadata": {"name": name}},
        {
            **KUEUE,
            "kind": "ClusterQueue",
            "metadata": {"name": name},
            "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
        },
        {
            **KUEUE,
            "kind": "LocalQueue",
            "metadata": {"name": QUEUE, "namespace": name},
            "spec": {"clusterQueue": name},
        },
    )
    yield name
    for kind in ("clusterqueue", "resourceflavor"):
        cluster.bed.kubectl("delete", kind, name, "--wait=false")
    cluster.bed.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def create(centre: Centre) -> Create:
    """Jobs for the queue, which orders them by the second in which they came."""
    config = replace(CONFIG, kubernetes=KubernetesRuntime(queue=QUEUE))

    def make(script: str = "sleep 1", **spec: Any) -> Job:
        job = job_of(script, config=config, **spec)
        assert centre.insist(job) in ("journaled", "known")
        second = int(time.time())
        eventually(lambda: int(time.time()) > second)
        return job

    return make


def begun_and_ended(centre: Centre, job: Job) -> tuple[int, int]:
    status = centre.ended(job.name, 180)
    assert status.exit_code == 0, status
    end = status.containers[0].state.end
    assert end is not None
    return end.started_ms, end.finished_ms


def until_it_waits(centre: Centre, job: Job) -> None:
    waits = centre.until(job.name, lambda s: s.containers[0].state.reason == GATED, 60)
    assert waits.phase == QUEUED
    assert "kueue.x-k8s.io/admission" in waits.containers[0].state.message


def test_pods_run_in_the_order_in_which_they_came(
    submitter: Submitter, centre: Centre, create: Create, cluster: Cluster, namespace: str
) -> None:
    jobs = [create("sleep 4"), *(create() for _ in range(4))]
    until_it_waits(centre, jobs[-1])
    pod = cluster.pod(namespace, jobs[-1].name)
    assert pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == QUEUE
    times = [begun_and_ended(centre, job) for job in jobs]
    assert times == sorted(times)
    for (_, ended), (begun, _) in zip(times, times[1:]):
        assert ended <= begun
    until(lambda: not cluster.names(namespace, "pods,secrets,configmaps"))
    until(lambda: not cluster.names(namespace, "workloads.kueue.x-k8s.io"))


def test_one_that_is_deleted_while_it_waits_never_runs(
    submitter: Submitter, centre: Centre, create: Create, cluster: Cluster, namespace: str
) -> None:
    first, second, third = create("sleep 8"), create(), create()
    until_it_waits(centre, second)
    centre.delete(second.name, 0)
    centre.until_gone(second.name)
    assert begun_and_ended(centre, first)[1] <= begun_and_ended(centre, third)[0]
    assert not [status for status in centre.heard[second.name] if status.started_ms]
    until(lambda: not cluster.names(namespace, "pods,secrets,configmaps"))


def test_places_in_the_queue_outlive_the_submitter_and_kueue(
    submitter: Submitter, centre: Centre, create: Create, cluster: Cluster
) -> None:
    first, second = create("sleep 5"), create()
    until_it_waits(centre, second)
    submitter.stop(signal.SIGKILL)
    cluster.bed.kill("kueue")
    submitter.until_ready(centre)
    # Without it no pod can be made: the job keeps its place with the submitter.
    third = create()
    assert centre.status(third.name) is not None
    cluster.bed.start("kueue")
    times = [begun_and_ended(centre, job) for job in (first, second, third)]
    assert times == sorted(times)


def test_one_that_the_queue_gives_up_says_so(
    submitter: Submitter, centre: Centre, create: Create, cluster: Cluster, namespace: str
) -> None:
    job = create("sleep 1000", grace=1)
    centre.until(job.name, lambda s: s.containers[0].state.state == "running", 60)
    policy = ["patch", "clusterqueue", namespace, "--type=merge", "--patch"]
    cluster.bed.kubectl(*policy, '{"spec": {"stopPolicy": "HoldAndDrain"}}')
    try:
        status = centre.ended(job.name, 90)
    finally:
        cluster.bed.kubectl(*policy, '{"spec": {"stopPolicy": "None"}}')
    assert status.phase == ENDED
    assert status.exit_code != 0
    assert "ClusterQueue" in status.message
