"""docs/pods.md says with which words a pod is refused; these are the words."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from templates.common.errors import PodRejected
from templates.site.build_config import BuildConfig, HostPath, PodResources, Runtime, Volumes
from templates.translation.build import build
from tests.support.script_runner import REPOSITORY, manifests, pod, secret, sh

TEXT = (REPOSITORY / "docs" / "pods.md").read_text(encoding="utf-8")
CONFIG = BuildConfig(
    limits=PodResources(cpu="32"), volumes=Volumes(host_paths=(HostPath("/data"),))
)
PODMAN = replace(CONFIG, runtime=Runtime("podman"))


def mounting(**source: Any) -> dict[str, Any]:
    mount = {"name": "data", "mountPath": "/data"}
    made = pod(sh("true", volumeMounts=[mount]), volumes=[{"name": "data", **source}])
    made["metadata"]["namespace"] = "team-a"
    return made


def referring() -> list[dict[str, Any]]:
    reference = {"secretKeyRef": {"name": "creds", "key": "x"}}
    variable = {"name": "A", "valueFrom": reference}
    return [pod(sh("true", env=[variable])), secret("creds", stringData={"y": "z"})]


REFUSED: list[tuple[str, Any, BuildConfig]] = [
    (
        "pod.spec.volumes[data].hostPath.path: /etc is not allowed at this site (allowed: /data)",
        mounting(hostPath={"path": "/etc"}),
        CONFIG,
    ),
    ("...command: must be given: the host runtime has no images", pod({}), CONFIG),
    ("...secretKeyRef: 'creds' has no key 'x'", referring(), CONFIG),
    (
        "...: ConfigMap settings did not come with the pod",
        mounting(configMap={"name": "settings"}),
        CONFIG,
    ),
    (
        "this site has no place for the claim team-a/data",
        mounting(persistentVolumeClaim={"claimName": "data"}),
        CONFIG,
    ),
    (
        "this site has no place for nfs.example.org:/x",
        mounting(nfs={"server": "nfs.example.org", "path": "/x"}),
        CONFIG,
    ),
    ("volumes of type csi are not supported", mounting(csi={"driver": "x"}), CONFIG),
    (
        "...restartPolicyRules: not supported; the restartPolicy counts",
        pod(sh("true", restartPolicyRules=[{"action": "Restart"}])),
        CONFIG,
    ),
    (
        "64 cpus are more than this site's 32",
        pod(sh("true", resources={"limits": {"cpu": "64"}})),
        CONFIG,
    ),
    (
        "pod.spec.resourceClaims: not supported; ask for devices by resources.limits",
        pod(sh("true"), resourceClaims=[{"name": "gpu"}]),
        CONFIG,
    ),
    (
        "...lifecycle.stopSignal: not supported; it is always SIGTERM",
        pod(sh("true", lifecycle={"stopSignal": "SIGUSR1"})),
        CONFIG,
    ),
    (
        "grpc probes are not supported; use exec, httpGet or tcpSocket",
        pod(sh("true", livenessProbe={"grpc": {"port": 1}})),
        CONFIG,
    ),
    (
        "...securityContext.privileged: this site does not allow it",
        pod(sh("true", securityContext={"privileged": True})),
        CONFIG,
    ),
    (
        "apptainer cannot hand gpu.intel.com/i915 to a container",
        pod(sh("true", resources={"limits": {"gpu.intel.com/i915": 1}})),
        replace(CONFIG, runtime=Runtime("apptainer")),
    ),
    (
        "...env: apptainer keeps 'APPTAINER_NAME' for itself: give it another name",
        pod(sh("true", env=[{"name": "APPTAINER_NAME", "value": "x"}])),
        replace(CONFIG, runtime=Runtime("apptainer")),
    ),
    (
        "podman cannot start images of the form ...",
        pod(sh("true", image="oras://ghcr.io/a/b:1")),
        PODMAN,
    ),
]


@pytest.mark.parametrize(("words", "asked", "config"), REFUSED, ids=[r[0] for r in REFUSED])
def test_a_pod_is_refused_with_the_words_of_the_document(
    words: str, asked: Any, config: BuildConfig
) -> None:
    assert f"`{words}`" in TEXT
    with pytest.raises(PodRejected) as caught:
        build(manifests(asked), config)
    assert re.search(re.escape(words).replace(r"\.\.\.", ".*"), str(caught.value))
