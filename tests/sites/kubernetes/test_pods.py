"""Pods in a cluster that is a pool: what they get, what is told of them, what is left of them."""

from __future__ import annotations

import base64
import json
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from templates.job.status import JobStatus
from templates.site.build_config import HostPath, Volumes
from tests.sites.kubernetes.pool import CONFIG, IMAGE, Cluster, job_of
from tests.support.kueue_api import Refused
from tests.support.kueue_bed import until
from tests.support.nats_server import NatsServer
from tests.unit.submitter.conftest import Start
from tests.unit.submitter.rig import Centre, Submitter, eventually, kill


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> str:
    return cluster.namespace()


@pytest.fixture
def start(
    nats: NatsServer, centre: Centre, cluster: Cluster, namespace: str, tmp_path: Path
) -> Iterator[Start]:
    started: list[Submitter] = []

    def start_one(**pool: Any) -> Submitter:
        one = Submitter(nats, tmp_path, **cluster.pool(namespace, **pool))
        started.append(one)
        return one.until_ready(centre)

    yield start_one
    kill(started)


def run(centre: Centre, *args: Any, **spec: Any) -> tuple[JobStatus, str]:
    """A job's end, and what its only container said."""
    job = job_of(*args, **spec)
    assert centre.create(job) == {"state": "journaled"}
    status = centre.ended(job.name, 90)
    return status, centre.logs(job.name).decode()


def container(script: str, **more: Any) -> dict[str, Any]:
    return {"name": "main", "image": IMAGE, "command": ["bash", "-c", script], **more}


# --- what comes along -----------------------------------------------------------------------------


def test_values_arrive_as_they_are_and_nothing_secret_is_in_the_pod(
    start: Start, centre: Centre, cluster: Cluster, namespace: str
) -> None:
    start()
    values = {"PLAIN": "a b", "ODD.NAME": "x", "LINES": "one\ntwo", "REF": "$(PLAIN) $$x $(NO)"}
    # A manifest is resolved here as the first cluster's kubelet would have done it.
    expected = {**values, "REF": "a b $x $(NO)"}
    env = [{"name": name, "value": value} for name, value in values.items()]
    script = 'echo "$0 $1"; cat /proc/self/environ; echo; sleep 1000'
    main = container(script, env=env, args=["$(PLAIN)", "$(NO)"])
    job = job_of(containers=[main])
    centre.create(job)
    said = eventually(lambda: centre.logs(job.name).decode(), 60)
    arguments, _, environment = said.partition("\n")
    assert arguments == "a b $(NO)"
    assert {f"{name}={value}" for name, value in expected.items()} <= {*environment.split("\0")}
    text = json.dumps(cluster.pod(namespace, job.name))
    assert "two" not in text
    centre.delete(job.name, 0)
    centre.until_gone(job.name)


def test_volumes_and_the_first_clusters_token_come_as_files_and_no_other_token_does(
    start: Start, centre: Centre, cluster: Cluster, namespace: str
) -> None:
    start()
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings"},
        "data": {"a": "settings\n"},
        "binaryData": {"b": base64.b64encode(b"\x00\xff").decode()},
    }
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "key"},
        "stringData": {"key": "hidden\n", "other": "never"},
    }
    volumes = [
        {"name": "cfg", "configMap": {"name": "settings"}},
        {
            "name": "sec",
            "secret": {
                "secretName": "key",
                "items": [{"key": "key", "path": "deep/er", "mode": 0o400}],
            },
        },
        {
            "name": "all",
            "projected": {
                "sources": [
                    {"configMap": {"name": "settings", "items": [{"key": "a", "path": "x"}]}},
                    {
                        "downwardAPI": {
                            "items": [{"path": "me", "fieldRef": {"fieldPath": "metadata.name"}}]
                        }
                    },
                ]
            },
        },
        {"name": "work", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
    ]
    mounts = [
        {"name": "cfg", "mountPath": "/cfg"},
        {"name": "sec", "mountPath": "/sec"},
        {"name": "all", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"},
        {"name": "work", "mountPath": "/work"},
    ]
    there = "/var/run/secrets/kubernetes.io/serviceaccount"
    script = (
        "cat /cfg/a; stat -L -c %s /cfg/b; cat /sec/deep/er; ls /sec; "
        f"cat {there}/x {there}/me; echo; ls {there}; echo x >/work/x && cat /work/x; "
        "echo y 2>/dev/null >/cfg/new || echo read-only"
    )
    main = container(script, volumeMounts=mounts)
    status, said = run(centre, objects=[config, secret], containers=[main], volumes=volumes)
    assert status.exit_code == 0, said
    assert said.splitlines() == [
        *("settings", "2", "hidden", "deep", "settings", "job", "me", "x", "x", "read-only")
    ]
    until(lambda: not cluster.names(namespace, "secrets,configmaps,pods"))


def test_init_containers_probes_hooks_and_rights(start: Start, centre: Centre) -> None:
    start()
    mounts = [{"name": "work", "mountPath": "/work"}]
    first = {**container("echo first >/work/file", volumeMounts=mounts), "name": "first"}
    main = container(
        "until [ -e /work/hook ]; do sleep 0.1; done; cat /work/file; echo $UID; sleep 1000",
        volumeMounts=mounts,
        lifecycle={"postStart": {"exec": {"command": ["touch", "/work/hook"]}}},
        readinessProbe={"exec": {"command": ["true"]}, "periodSeconds": 1},
        securityContext={"runAsUser": 1234, "allowPrivilegeEscalation": False},
    )
    volumes = [{"name": "work", "emptyDir": {}}]
    job = job_of(
        initContainers=[first],
        containers=[main],
        volumes=volumes,
        securityContext={"fsGroup": 99},
    )
    centre.create(job)
    ready = centre.until(job.name, lambda s: s.containers[1].state.ready, 60)
    end = ready.containers[0].state.end
    assert end is not None
    assert (end.exit_code, end.reason) == (0, "Completed")
    eventually(lambda: centre.logs(job.name).decode() == "first\n1234\n")
    centre.delete(job.name, 0)
    centre.until_gone(job.name)


# --- what is told ---------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 7, 255])
def test_exit_codes_and_messages(start: Start, centre: Centre, code: int) -> None:
    start()
    status, _ = run(centre, f"echo last words >/dev/termination-log; exit {code}")
    end = status.containers[0].state.end
    assert end is not None
    assert (end.exit_code, end.message) == (code, "last words\n")
    assert (status.exit_code, status.node) == (code, "node1")
    assert 0 < end.started_ms <= end.finished_ms <= status.finished_ms


def test_a_container_that_exceeds_its_memory(start: Start, centre: Centre) -> None:
    start()
    grow = "x=$(head -c 200000000 /dev/zero | tr '\\0' x); sleep 1000"
    status, _ = run(centre, grow, resources={"limits": {"memory": "64Mi"}})
    end = status.containers[0].state.end
    assert end is not None
    assert (end.exit_code, end.reason) == (137, "OOMKilled")


def test_an_image_that_cannot_be_pulled_waits_with_the_clusters_words(
    start: Start, centre: Centre
) -> None:
    start()
    job = job_of(containers=[{**container("true"), "image": "registry.invalid/nothing:1"}])
    centre.create(job)
    waits = centre.until(
        job.name, lambda s: s.containers[0].state.reason in ("ErrImagePull", "ImagePullBackOff"), 60
    )
    assert "registry.invalid/nothing:1" in waits.containers[0].state.message
    centre.delete(job.name)
    centre.until_gone(job.name)


def test_a_pod_that_fits_nowhere_waits_with_the_schedulers_words(
    start: Start, centre: Centre
) -> None:
    start()
    job = job_of(resources={"requests": {"cpu": "1000"}})
    centre.create(job)
    waits = centre.until(job.name, lambda s: s.containers[0].state.reason == "Unschedulable")
    assert "Insufficient cpu" in waits.containers[0].state.message
    assert waits.phase == "queued"
    centre.delete(job.name)
    centre.until_gone(job.name)


def test_restarts_and_the_log_before(start: Start, centre: Centre) -> None:
    start()
    script = (
        "if [ -e /work/x ]; then echo second; sleep 1000; fi; touch /work/x; echo first; exit 3"
    )
    mounts = [{"name": "work", "mountPath": "/work"}]
    job = job_of(
        containers=[container(script, volumeMounts=mounts)],
        volumes=[{"name": "work", "emptyDir": {}}],
        restartPolicy="OnFailure",
    )
    centre.create(job)
    again = centre.until(
        job.name, lambda s: s.containers[0].state.restarts == 1 and s.containers[0].state.ready, 60
    )
    before = again.containers[0].state.last_end
    assert before is not None
    assert before.exit_code == 3
    eventually(lambda: centre.logs(job.name) == b"second\n")
    assert centre.logs(job.name, previous=True) == b"first\n"
    centre.delete(job.name, 0)
    centre.until_gone(job.name)


def test_a_log_is_read_while_it_grows_and_when_its_pod_is_gone(
    start: Start, centre: Centre, cluster: Cluster, namespace: str
) -> None:
    start()
    job = job_of("for i in $(seq 20); do echo line $i; sleep 0.2; done")
    centre.create(job)
    eventually(lambda: b"line 3\n" in centre.logs(job.name), 60)
    assert centre.logs(job.name, follow=True) == b"".join(b"line %d\n" % i for i in range(1, 21))
    centre.ended(job.name)
    until(lambda: job.name not in cluster.names(namespace, "pods"))
    whole = centre.logs(job.name)
    assert whole == b"".join(b"line %d\n" % i for i in range(1, 21))
    assert centre.logs(job.name, tail=2) == b"line 19\nline 20\n"
    stamped = centre.logs(job.name, timestamps=True).splitlines()
    assert len(stamped) == 20
    assert stamped[0].endswith(b" line 1")


# --- ends -----------------------------------------------------------------------------------------


def test_a_pod_that_somebody_deletes_there_ends_with_words(
    start: Start, centre: Centre, cluster: Cluster, namespace: str
) -> None:
    start()
    job = job_of("sleep 1000", grace=1)
    centre.create(job)
    centre.until(job.name, lambda s: s.containers[0].state.state == "running", 60)
    cluster.bed.kubectl("delete", "pod", job.name, "--namespace", namespace, "--force")
    status = centre.ended(job.name)
    assert status.exit_code == 137
    assert "the pod was deleted in the site's cluster" in status.message


def test_what_the_namespace_forbids_is_refused_in_its_words(
    start: Start, centre: Centre, cluster: Cluster, namespace: str
) -> None:
    start(policy={"host_paths": ["/etc"]})
    allowed = replace(CONFIG, volumes=Volumes(host_paths=(HostPath("/etc"),)))
    mounts = [{"name": "etc", "mountPath": "/host"}]
    job = job_of(
        config=allowed,
        containers=[container("ls /host", volumeMounts=mounts)],
        volumes=[{"name": "etc", "hostPath": {"path": "/etc"}}],
    )
    assert centre.create(job) == {"state": "journaled"}
    status = centre.ended(job.name)
    assert "violates PodSecurity" in status.message
    assert not cluster.names(namespace, "pods")


def test_what_the_sites_policy_forbids_never_gets_there(
    start: Start, centre: Centre, cluster: Cluster, namespace: str
) -> None:
    start()
    allowed = replace(CONFIG, rules=replace(CONFIG.rules, privileged=True))
    for spec in (
        {"hostNetwork": True},
        {"containers": [container("true", securityContext={"privileged": True})]},
    ):
        refused = centre.create(job_of(config=allowed, **spec))["refused"]
        assert refused["message"].startswith("policy.privileged of this pool does not allow")


def test_quota_makes_jobs_wait_and_nothing_is_left_of_any(
    nats: NatsServer, centre: Centre, cluster: Cluster, tmp_path: Path
) -> None:
    namespace = cluster.namespace(pods=2)
    pool = cluster.pool(namespace, options={"capacity": "quota", "quota": "pool"}, resources={})
    submitter = Submitter(nats, tmp_path, **pool).until_ready(centre)
    try:
        jobs = [job_of("echo $A; sleep 1", name=f"job-{n}", **with_variable()) for n in range(8)]
        for number, job in enumerate(jobs):
            assert centre.insist(job) in ("journaled", "known")
            if number in (2, 5):
                submitter.stop(signal.SIGKILL)
                submitter.until_ready(centre)
        for job in jobs:
            assert centre.ended(job.name, 120).exit_code == 0
        offered = [told for kind, told in centre.others if kind == "resources"]
        assert offered[-1]["quotas"] == {"pods": "2"}
        until(lambda: not cluster.names(namespace, "pods,secrets,configmaps"))
    finally:
        submitter.stop(signal.SIGKILL)


def with_variable() -> dict[str, Any]:
    return {
        "containers": [container("echo $A; sleep 1", env=[{"name": "A", "value": "secret value"}])]
    }


def test_after_a_gap_everything_is_known_again(
    start: Start, centre: Centre, cluster: Cluster
) -> None:
    start()
    job = job_of("sleep 5; exit 6")
    centre.create(job)
    centre.until(job.name, lambda s: s.containers[0].state.state == "running", 60)
    cluster.bed.kill("apiserver")
    cluster.bed.start("apiserver")
    assert centre.ended(job.name, 120).exit_code == 6


def test_the_account_may_do_nothing_else(cluster: Cluster, namespace: str) -> None:
    config = cluster.bed.kubeconfig_for("interlink-submitter", namespace)
    for words in (("get", "secrets"), ("get", "nodes"), ("get", "pods", "--namespace", "default")):
        with pytest.raises(Refused, match="forbidden"):
            cluster.bed.kubectl(*words, "--kubeconfig", str(config))
