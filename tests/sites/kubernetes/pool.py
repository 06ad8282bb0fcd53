"""A real cluster as a pool, for tests: a bed of scripts/bed, with what docs/kubernetes.md says."""

from __future__ import annotations

import json
import os
import ssl
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import urllib3

from templates.job.model import Job
from templates.pod.user_manifests import read_manifests
from templates.site.build_config import BuildConfig, HostPath, Runtime, Volumes
from templates.translation.build import build
from tests.support.images import Files, archive, libraries
from tests.support.kueue_bed import REPO, KueueBed
from tests.unit.submitter.rig import manifest_of

MANIFEST = REPO / "docs" / "examples" / "kubernetes-pool.yaml"
ACCOUNT = "interlink-submitter"
IMAGE = "docker.io/tests/bash:1"
TOOLS = ("cat", "chmod", "echo", "env", "head", "hostname", "ls", "mkdir", "seq", "setsid", "sh")
TOOLS += ("sleep", "stat", "touch", "tr", "true")


def make_image(folder: Path, **config: Any) -> Path:
    """Bash, and what scripts call, out of busybox; another image with another configuration."""
    bash, busybox = Path("/bin/bash").resolve(), Path("/bin/busybox").resolve()
    files: Files = {"/bin/bash": bash, **{f"/bin/{tool}": busybox for tool in TOOLS}}
    files.update(libraries([bash]))
    return archive(folder / "bash.tar", IMAGE, files, ["/bin/bash", "-c", "echo entry"], **config)


class Cluster:
    """One that is up, with a namespace for each who asks."""

    def __init__(self, bed: KueueBed) -> None:
        self.bed = bed

    def namespace(self, *, strict: bool = True, pods: int = 0) -> str:
        """One as the docs have it; not ``strict``: pods may see host paths. ``pods``: its quota."""
        name = f"pool-{uuid.uuid4().hex[:8]}"
        text = MANIFEST.read_text().replace(": interlink\n", f": {name}\n")
        if not strict:
            text = text.replace("enforce: baseline", "enforce: privileged")
        self.bed.apply(text)
        self.bed.until(lambda: self.bed.get("serviceaccount", "default", namespace=name))
        if pods:
            self.quota(name, {"pods": str(pods)})
        return name

    def quota(self, namespace: str, hard: dict[str, str]) -> None:
        """Have the namespace's quota be this, and be known to be."""
        metadata = {"name": "pool", "namespace": namespace}
        spec = {"hard": hard}
        self.bed.apply(
            {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": spec}
        )

        def told() -> bool:
            found = self.bed.get("resourcequota", "pool", namespace=namespace)
            return bool(found.get("status", {}).get("hard") == hard)

        self.bed.until(told)

    def pool(self, namespace: str, **more: Any) -> dict[str, Any]:
        """The configuration of a pool in a namespace, with the account that the docs give it."""
        options = {
            "kubeconfig": str(self.bed.kubeconfig_for(ACCOUNT, namespace)),
            "namespace": namespace,
            **more.pop("options", {}),
        }
        return {
            "backend": "kubernetes",
            "options": options,
            "resources": {"cpu": "4", "memory": "8Gi", "pods": "50"},
            "build": {"runtime": {"name": "kubernetes"}},
            **more,
        }

    def names(self, namespace: str, kind: str) -> set[str]:
        """Objects of some kinds in a namespace, without those that every namespace has."""
        lists = [self.bed.get(one, namespace=namespace)["items"] for one in kind.split(",")]
        names = {item["metadata"]["name"] for items in lists for item in items}
        return names - {"kube-root-ca.crt"}

    def pod(self, namespace: str, name: str) -> dict[str, Any]:
        return self.bed.get("pod", name, namespace=namespace)


def witness(bed: KueueBed) -> Path:
    """A new folder that the bed's node has under the same path."""
    folder = bed.kubeconfig.parent / "witness" / uuid.uuid4().hex[:8]
    folder.mkdir(parents=True)
    for one in (folder, folder.parent):
        os.chmod(one, 0o777)
    return folder


def user_of(bed: KueueBed, token: str) -> str:
    """Who somebody with a token is to a cluster's API server; empty if it does not know it."""
    pool = urllib3.PoolManager(ssl_context=ssl.create_default_context(cadata=bed.authority))
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = pool.request(
        "POST",
        f"{bed.server}/apis/authentication.k8s.io/v1/selfsubjectreviews",
        headers={"Authorization": f"Bearer {token}"},
        json=review,
    )
    if answer.status == 401:
        return ""
    assert answer.status == 201, answer.data
    return str(answer.json()["status"]["userInfo"]["username"])


CONFIG = BuildConfig(runtime=Runtime("kubernetes"))


def job_of(
    script: str = "exit 0",
    name: str = "job",
    uid: str = "",
    grace: int = 3,
    config: BuildConfig = CONFIG,
    objects: Sequence[dict[str, Any]] = (),
    **spec: Any,
) -> Job:
    """As the job of tests/unit/submitter/rig.py, for a cluster."""
    manifest = json.loads(manifest_of(script, name, uid, grace, **spec))
    for container in (*manifest["spec"].get("initContainers", ()), *manifest["spec"]["containers"]):
        if container.get("image", "none") == "none":
            container["image"] = IMAGE
    texts = [("pod.json", json.dumps(manifest))]
    texts += [(f"{index}.json", json.dumps(one)) for index, one in enumerate(objects)]
    return build(read_manifests(texts), config)


def job_with(folder: Path) -> Any:
    """The same, with a folder of the node's mounted under its path."""
    config = BuildConfig(
        runtime=Runtime("kubernetes"), volumes=Volumes(host_paths=(HostPath(str(folder)),))
    )

    def make(
        script: str = "exit 0", name: str = "job", uid: str = "", grace: int = 3, **spec: Any
    ) -> Job:
        mounts = [{"name": "witness", "mountPath": str(folder)}]
        container = {
            "name": "main",
            "image": IMAGE,
            "command": ["bash", "-c", script],
            "volumeMounts": mounts,
        }
        volumes = [{"name": "witness", "hostPath": {"path": str(folder)}}]
        given = {"containers": [container], "volumes": volumes, **spec}
        return job_of(script, name, uid, grace, config, **given)

    return make
