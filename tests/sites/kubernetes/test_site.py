"""What a site's configuration gives to every pod of its cluster, and what the pool offers."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from templates.site.build_config import BuildConfig, KubernetesRuntime
from tests.sites.kubernetes.pool import CONFIG, Cluster, job_of, witness
from tests.support.kueue_bed import REPO
from tests.support.nats_server import NatsServer
from tests.unit.submitter.rig import Centre, Submitter, eventually

NODES = REPO / "docs" / "examples" / "kubernetes-pool-nodes.yaml"
TAINT = "dedicated=batch:NoSchedule"


def has(**kubernetes: Any) -> BuildConfig:
    return replace(CONFIG, kubernetes=KubernetesRuntime(**kubernetes))


@contextmanager
def made(cluster: Cluster, *objects: dict[str, Any]) -> Iterator[None]:
    """Objects of the whole cluster, for as long as they are needed."""
    cluster.bed.apply(*objects)
    try:
        yield
    finally:
        for one in objects:
            kind, name = one["kind"].lower(), one["metadata"]["name"]
            cluster.bed.kubectl("delete", kind, name, "--wait=false")


# --- where pods run -------------------------------------------------------------------------------


@pytest.fixture
def tainted(cluster: Cluster) -> Iterator[None]:
    """A node that only some pods may run on."""
    cluster.bed.kubectl("taint", "node", "node1", TAINT)
    cluster.bed.kubectl("label", "node", "node1", "kind=batch")
    yield
    cluster.bed.kubectl("taint", "node", "node1", f"{TAINT}-")
    cluster.bed.kubectl("label", "node", "node1", "kind-")


def test_pods_run_on_the_nodes_that_the_site_has_for_them(
    submitter: Submitter, centre: Centre, cluster: Cluster, namespace: str, tainted: None
) -> None:
    classes = (
        {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": "plain"},
            "handler": "runc",
        },
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "batch"},
            "value": -7,
        },
    )
    own = {"key": "dedicated", "operator": "Exists"}  # which counts in the first cluster only
    lost = job_of("true", tolerations=[own])
    centre.create(lost)
    waits = centre.until(lost.name, lambda s: s.containers[0].state.reason == "Unschedulable")
    assert "untolerated taint" in waits.containers[0].state.message
    given = has(
        node_selector={"kind": "batch"},
        tolerations=(TAINT,),
        runtime_class="plain",
        priority_class="batch",
    )
    job = job_of("sleep 5; exit 3", config=given, priorityClassName="system-node-critical")
    with made(cluster, *classes):
        centre.create(job)
        centre.until(job.name, lambda s: s.containers[0].state.state == "running", 60)
        spec = cluster.pod(namespace, job.name)["spec"]
        assert (spec["runtimeClassName"], spec["priority"]) == ("plain", -7)
        assert centre.ended(job.name, 60).exit_code == 3
    centre.delete(lost.name)
    centre.until_gone(lost.name)


def test_a_claim_is_the_one_that_the_site_has_for_it(
    submitter: Submitter, centre: Centre, cluster: Cluster, namespace: str
) -> None:
    folder = witness(cluster.bed)
    size = {"storage": "1Gi"}
    spec = {"storageClassName": "", "accessModes": ["ReadWriteMany"]}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": namespace},
        "spec": {**spec, "capacity": size, "hostPath": {"path": str(folder)}},
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "scratch", "namespace": namespace},
        "spec": {**spec, "volumeName": namespace, "resources": {"requests": size}},
    }
    mounts = [{"name": "data", "mountPath": "/data"}]
    main = {"name": "main", "image": "none", "volumeMounts": mounts}
    job = job_of(
        config=has(claims={"tests/data": "scratch"}),
        containers=[{**main, "command": ["bash", "-c", "echo $HOSTNAME >/data/seen"]}],
        volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    )
    with made(cluster, volume):
        cluster.bed.apply(claim)
        centre.create(job)
        assert centre.ended(job.name, 90).exit_code == 0
        cluster.bed.kubectl("delete", "pvc", "scratch", "--namespace", namespace)
    assert (folder / "seen").read_text() == "job\n"


def test_more_rights_are_given_where_site_and_namespace_allow_them(
    nats: NatsServer, centre: Centre, cluster: Cluster, tmp_path: Path
) -> None:
    namespace = cluster.namespace(strict=False)
    pool = cluster.pool(namespace, policy={"privileged": True})
    submitter = Submitter(nats, tmp_path, **pool).until_ready(centre)
    allowed = replace(CONFIG, rules=replace(CONFIG.rules, privileged=True))
    main = {"name": "main", "image": "none", "securityContext": {"privileged": True}}
    script = "hostname; [ -e /dev/kmsg ] && echo its devices"
    try:
        job = job_of(
            config=allowed,
            containers=[{**main, "command": ["bash", "-c", script]}],
            hostNetwork=True,
        )
        centre.create(job)
        assert centre.ended(job.name, 90).exit_code == 0
        assert centre.logs(job.name) == b"node1\nits devices\n"
    finally:
        submitter.stop(signal.SIGKILL)
        cluster.bed.kubectl("delete", "namespace", namespace, "--wait=false")


# --- what is offered ------------------------------------------------------------------------------


def offered(centre: Centre) -> dict[str, Any]:
    """What the pool has last said of itself."""
    told = [message for kind, message in centre.others if kind == "resources"]
    return told[-1] if told else {}


def test_what_the_nodes_can_give_is_offered_once_the_account_may_see_them(
    nats: NatsServer, centre: Centre, cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    pool = cluster.pool(namespace, options={"capacity": "nodes"}, resources={})
    submitter = Submitter(nats, tmp_path, **pool).until_ready(centre)
    text = NODES.read_text().replace(": interlink\n", f": {namespace}\n")
    try:
        eventually(lambda: "cannot list resource" in json.dumps(offered(centre)))
        cluster.bed.apply(text)
        eventually(lambda: offered(centre).get("quotas", {}).get("cpu"))
        allocatable = cluster.bed.get("node", "node1")["status"]["allocatable"]
        quotas = offered(centre)["quotas"]
        assert quotas["pods"] == allocatable["pods"]
        assert quotas["cpu"] == f"{int(allocatable['cpu']) * 1000}m"
        cluster.bed.kubectl("cordon", "node1")
        eventually(lambda: not offered(centre)["quotas"].get("cpu"))
        cluster.bed.kubectl("uncordon", "node1")
        eventually(lambda: offered(centre)["quotas"] == quotas)
    finally:
        submitter.stop(signal.SIGKILL)
        cluster.bed.kubectl("uncordon", "node1")
        for kind in ("clusterrolebinding", "clusterrole"):
            cluster.bed.kubectl("delete", kind, "interlink-submitter-nodes")
