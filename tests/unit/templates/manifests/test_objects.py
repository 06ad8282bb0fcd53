"""A pod as objects for another cluster."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from templates.common.errors import PodRejected
from templates.job.model import Job
from templates.site.build_config import (
    ON_THE_NODE,
    BuildConfig,
    HostPath,
    KubernetesRuntime,
    NfsExport,
    PodResources,
    Rules,
    Runtime,
    Volumes,
)
from templates.translation.build import build
from tests.support.script_runner import config_map, manifests, pod, secret, sh

CONFIG = BuildConfig(runtime=Runtime("kubernetes"), rules=Rules(annotations=("*", *ON_THE_NODE)))
UID = "6dab9b0e-8b6c-4d3c-8adf-9f04d2a7b987"


def job_of(content: Any, config: BuildConfig = CONFIG) -> Job:
    content = content if isinstance(content, list) else [content]
    content[0]["metadata"]["uid"] = UID
    return build(manifests(content), config)


def made(content: Any, config: BuildConfig = CONFIG) -> dict[str, Any]:
    (file,) = job_of(content, config).files
    assert (file.path, file.mode, file.secret) == ("secret/manifests.json", 0o600, True)
    found: dict[str, Any] = json.loads(file.content)
    return found


def spec_of(content: Any, config: BuildConfig = CONFIG) -> dict[str, Any]:
    spec: dict[str, Any] = made(content, config)["pod"]["spec"]
    return spec


def refusal(content: Any, config: BuildConfig = CONFIG) -> str:
    with pytest.raises(PodRejected) as caught:
        made(content, config)
    return str(caught.value)


def test_a_small_pod() -> None:
    found = made(pod(sh("true"), name="hello"))
    assert found["objects"] == []
    assert found["pod"]["metadata"] == {
        "name": f"hello-{UID}",
        "labels": {"interlink-nats/job": f"hello-{UID}"},
        "annotations": {"interlink-nats/pod": "default/hello"},
    }
    assert found["pod"]["spec"] == {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 30,
        "hostname": "hello",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [
            {
                "name": "c0",
                "image": "docker.io/library/busybox:1.36",
                "imagePullPolicy": "IfNotPresent",
                "terminationMessagePath": "/dev/termination-log",
                "command": ["sh", "-c", "true", "sh"],
                "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
            }
        ],
    }


def test_the_same_pod_gives_the_same_job() -> None:
    assert job_of(pod(sh("true"))) == job_of(pod(sh("true")))


def test_nothing_of_the_first_clusters_scheduling_comes_along() -> None:
    content = pod(
        sh("true"),
        nodeName="virtual",
        nodeSelector={"a": "b"},
        tolerations=[{"key": "pool.vk.io", "operator": "Exists"}],
        serviceAccountName="robot",
        priorityClassName="high",
        schedulerName="other",
        dnsPolicy="None",
    )
    content["metadata"]["labels"] = {"app": "web"}
    content["metadata"]["annotations"] = {"x": "y"}
    assert made(content) == made(pod(sh("true")))


def test_what_the_site_gives_to_every_pod() -> None:
    site = KubernetesRuntime(
        {"pool": "batch"}, ("a=b:NoSchedule",), "gvisor", "low", "runner", ("pull",), "queue"
    )
    found = made(pod(sh("true")), replace(CONFIG, kubernetes=site))
    spec = found["pod"]["spec"]
    toleration = {"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"}
    assert spec["nodeSelector"] == {"pool": "batch"}
    assert spec["tolerations"] == [toleration]
    assert (spec["runtimeClassName"], spec["priorityClassName"]) == ("gvisor", "low")
    assert (spec["serviceAccountName"], spec["imagePullSecrets"]) == ("runner", [{"name": "pull"}])
    assert found["pod"]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "queue"


def test_words_that_the_kubelet_would_expand_are_kept_from_it() -> None:
    main = sh("echo $HOME $$(A) $(B) $(SET)", env=[{"name": "SET", "value": "x"}])
    (container,) = spec_of(pod(main))["containers"]
    assert container["command"][2] == "echo $$HOME $$(A) $$(B) x"


def test_values_are_in_a_secret() -> None:
    main = sh("true", env=[{"name": "A", "value": "hidden"}, {"name": "B.b", "value": ""}])
    found = made(pod(main, name="hello"))
    (object_,) = found["objects"]
    name = f"hello-{UID}-env-c0"
    assert (object_["kind"], object_["metadata"]["name"], object_["immutable"]) == (
        *("Secret", name),
        True,
    )
    assert base64.b64decode(object_["data"]["0"]) == b"hidden"
    env = found["pod"]["spec"]["containers"][0]["env"]
    assert env[0] == {"name": "A", "valueFrom": {"secretKeyRef": {"name": name, "key": "0"}}}
    assert [one["name"] for one in env] == ["A", "B.b"]


def test_volumes_with_files_are_objects_of_the_pods_own() -> None:
    mounts = [{"name": "cfg", "mountPath": "/cfg"}, {"name": "sec", "mountPath": "/sec"}]
    volumes = [
        {"name": "cfg", "configMap": {"name": "c", "defaultMode": 0o600}},
        {"name": "sec", "secret": {"secretName": "s", "items": [{"key": "k", "path": "a/b"}]}},
    ]
    content = [
        pod(sh("true", volumeMounts=mounts), volumes=volumes, name="hello"),
        config_map("c", data={"k": "v"}),
        secret("s", stringData={"k": "v", "other": "x"}),
    ]
    found = made(content)
    config, hidden = found["objects"]
    assert (config["kind"], hidden["kind"]) == ("ConfigMap", "Secret")
    assert len(hidden["data"]) == 1
    assert found["pod"]["spec"]["volumes"] == [
        {
            "name": "cfg",
            "configMap": {
                "name": f"hello-{UID}-volume-cfg",
                "items": [{"key": "0", "path": "k", "mode": 0o600}],
            },
        },
        {
            "name": "sec",
            "secret": {
                "secretName": f"hello-{UID}-volume-sec",
                "items": [{"key": "0", "path": "a/b", "mode": 0o644}],
            },
        },
    ]


def test_host_paths_and_claims_are_the_sites_to_allow() -> None:
    mount = [{"name": "v", "mountPath": "/v"}]
    path = pod(
        sh("true", volumeMounts=mount), volumes=[{"name": "v", "hostPath": {"path": "/data/x"}}]
    )
    assert "is not allowed at this site" in refusal(path)
    allowed = replace(CONFIG, volumes=Volumes(host_paths=(HostPath("/data", True),)))
    spec = spec_of(path, allowed)
    assert spec["volumes"] == [{"name": "v", "hostPath": {"path": "/data/x", "type": ""}}]
    assert spec["containers"][0]["volumeMounts"][0]["readOnly"]
    claim = pod(
        sh("true", volumeMounts=mount),
        volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "home"}}],
    )
    assert "this site has no claim for default/home (kubernetes.claims)" in refusal(claim)
    mapped = replace(CONFIG, kubernetes=KubernetesRuntime(claims={"home": "there"}))
    source = {"claimName": "there", "readOnly": False}
    assert spec_of(claim, mapped)["volumes"] == [{"name": "v", "persistentVolumeClaim": source}]


def test_nfs_is_refused_also_where_it_is_mapped_for_scripts() -> None:
    export = NfsExport("nfs.example.org", "/x", "/net/x")
    volume = {"name": "v", "nfs": {"server": "nfs.example.org", "path": "/x"}}
    wanted = pod(sh("true", volumeMounts=[{"name": "v", "mountPath": "/v"}]), volumes=[volume])
    words = refusal(wanted, replace(CONFIG, volumes=Volumes(nfs=(export,))))
    assert "volumes of type nfs are not supported in this pool" in words


@pytest.mark.parametrize("field", ["hostNetwork", "hostPID", "hostIPC"])
def test_what_belongs_to_the_node_needs_the_sites_consent(field: str) -> None:
    assert refusal(pod(sh("true"), **{field: True})) == (
        f"pod.spec.{field}: this site does not allow it"
    )
    config = replace(CONFIG, rules=replace(CONFIG.rules, privileged=True))
    assert spec_of(pod(sh("true"), **{field: True}), config)[field] is True
    assert job_of(pod(sh("true"), **{field: True}), config).privileged


def test_probes_hooks_sidecars_and_rights() -> None:
    main = sh(
        "true",
        ports=[{"name": "web", "containerPort": 80}],
        readinessProbe={"httpGet": {"port": "web", "path": "/x"}, "periodSeconds": 3},
        lifecycle={"preStop": {"sleep": {"seconds": 2}}},
        securityContext={"runAsUser": 5, "capabilities": {"drop": ["ALL"]}},
    )
    sidecar = {**sh("true"), "name": "side", "restartPolicy": "Always"}
    spec = spec_of(
        pod(main, initContainers=[{"image": "a:1", **sidecar}], securityContext={"fsGroup": 7})
    )
    container = spec["containers"][0]
    probe = container["readinessProbe"]
    assert probe["httpGet"] == {"port": 80, "path": "/x", "scheme": "HTTP"}
    assert (probe["periodSeconds"], probe["failureThreshold"]) == (3, 3)
    assert container["lifecycle"] == {"preStop": {"sleep": {"seconds": 2}}}
    assert container["securityContext"] == {"runAsUser": 5, "capabilities": {"drop": ["ALL"]}}
    assert spec["securityContext"] == {"fsGroup": 7}
    assert spec["initContainers"][0]["restartPolicy"] == "Always"


def test_pull_secrets_that_came_along() -> None:
    login = {
        **secret(
            "login", stringData={".dockerconfigjson": '{"auths": {"r.example": {"auth": "eDp5"}}}'}
        ),
        "type": "kubernetes.io/dockerconfigjson",
    }
    content = [pod(sh("true"), imagePullSecrets=[{"name": "login"}, {"name": "gone"}]), login]
    found = made(content)
    (object_,) = found["objects"]
    assert object_["type"] == "kubernetes.io/dockerconfigjson"
    document = json.loads(base64.b64decode(object_["data"][".dockerconfigjson"]))
    assert document == {"auths": {"r.example": {"auth": "eDp5"}}}
    assert found["pod"]["spec"]["imagePullSecrets"] == [{"name": object_["metadata"]["name"]}]


def test_what_no_cluster_has_room_for() -> None:
    mounts = [{"name": "cfg", "mountPath": "/cfg"}]
    volumes = [{"name": "cfg", "configMap": {"name": "c"}}]
    content = [
        pod(sh("true", volumeMounts=mounts), volumes=volumes),
        config_map("c", data={"a": "x" * 600_000, "b": "x" * 600_000}),
    ]
    assert "1200000 bytes are more than the" in refusal(content)


def test_what_needs_a_job_script_is_refused() -> None:
    content = pod(sh("true"))
    content["metadata"]["annotations"] = {"slurm-job.vk.io/pre-exec": "echo"}
    assert "runs on no cluster" in refusal(content)
    assert "images of the form" in refusal(pod(sh("true", image="/images/x.sif")))


def test_defaults_are_asked_for_where_the_pod_asks_for_nothing() -> None:
    config = replace(CONFIG, defaults=PodResources(cpu="250m", memory=None, wall_time_s=60))
    spec = spec_of(pod(sh("true")), config)
    assert spec["containers"][0]["resources"] == {"requests": {"cpu": "250m"}}
    assert spec["activeDeadlineSeconds"] == 60
