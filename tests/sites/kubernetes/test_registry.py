"""Images that need a login, the pod's own or the site's: from a real registry."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scripts.lib.interlink import free_port, is_up
from templates.job.model import Job
from templates.site.build_config import KubernetesRuntime
from tests.sites.kubernetes.pool import CONFIG, Cluster, job_of, make_image
from tests.unit.submitter.rig import Centre, Submitter, eventually

USER, PASSWORD = "alice", "geheim $x"
HASH = "$2b$05$abcdefghijklmnopqrstuu"  # how bcrypt is to make one of the password
SETTINGS = """\
version: 0.1
log: {{level: error}}
storage: {{filesystem: {{rootdirectory: {folder}/store}}}}
http: {{addr: "{registry}"}}
auth: {{htpasswd: {{realm: test, path: {folder}/users}}}}
"""
# How nodes reach it: without TLS.
REACHED = """\
server = "http://{registry}"
[host."http://{registry}"]
  capabilities = ["pull", "resolve"]
"""


@pytest.fixture(scope="module")
def image(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One that only alice may pull."""
    folder, host = tmp_path_factory.mktemp("registry"), cluster.bed.host
    registry = f"{host}:{free_port()}"
    crypt = ["perl", "-e", "print crypt($ARGV[0], $ARGV[1])", PASSWORD, HASH]
    hashed = subprocess.run(crypt, capture_output=True, text=True, check=True).stdout
    (folder / "users").write_text(f"{USER}:{hashed}\n")
    (folder / "settings").write_text(SETTINGS.format(folder=folder, registry=registry))
    reached = cluster.bed.kubeconfig.parent / "etc" / "registries" / registry
    reached.mkdir()
    (reached / "hosts.toml").write_text(REACHED.format(registry=registry))
    command = ["docker-registry", "serve", str(folder / "settings")]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as it,
    ):
        try:
            eventually(lambda: is_up(host, int(registry.rpartition(":")[2])), 30)
            # Not the image of all others: a node gives a private one to nobody without a login.
            archive = make_image(folder, Labels={"for": USER})
            yield push(archive, f"{registry}/tests/private:1")
        finally:
            it.terminate()
            shutil.rmtree(reached)


def push(archive: Path, image: str) -> str:
    login = f"--dest-creds={USER}:{PASSWORD}"
    to = ("--dest-tls-verify=false", login, f"docker-archive:{archive}", f"docker://{image}")
    subprocess.run(["skopeo", "copy", "--quiet", *to], check=True)
    return image


def login(name: str, image: str, password: str = PASSWORD) -> dict[str, Any]:
    auth = base64.b64encode(f"{USER}:{password}".encode()).decode()
    document = json.dumps({"auths": {image.partition("/")[0]: {"auth": auth}}})
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": {".dockerconfigjson": document},
    }


def job_from(image: str, **more: Any) -> Job:
    main = {"name": "main", "image": image, "imagePullPolicy": "Always"}
    return job_of(containers=[{**main, "command": ["bash", "-c", "exit 3"]}], **more)


def is_refused(centre: Centre, job: Job) -> str:
    """In which words; the job is deleted then."""
    centre.create(job)
    reasons = ("ErrImagePull", "ImagePullBackOff")
    waits = centre.until(job.name, lambda s: s.containers[0].state.reason in reasons, 60)
    centre.delete(job.name)
    centre.until_gone(job.name)
    return waits.containers[0].state.message


def test_the_pods_own_pull_secret_opens_it(
    submitter: Submitter, centre: Centre, image: str, cluster: Cluster, namespace: str
) -> None:
    own = {"imagePullSecrets": [{"name": "elsewhere"}, {"name": "pull"}]}
    job = job_from(image, objects=[login("pull", image)], **own)
    centre.create(job)
    assert centre.ended(job.name, 90).exit_code == 3
    eventually(lambda: not cluster.names(namespace, "pods,secrets"))
    wrong = job_from(image, objects=[login("pull", image, "wrong")], **own)
    assert image in is_refused(centre, wrong)


def test_the_sites_pull_secrets_open_it_for_all(
    submitter: Submitter, centre: Centre, image: str, cluster: Cluster, namespace: str
) -> None:
    words = is_refused(centre, job_from(image))
    assert image in words
    secret = login("site-login", image)
    secret["metadata"]["namespace"] = namespace
    cluster.bed.apply(secret)
    config = replace(CONFIG, kubernetes=KubernetesRuntime(pull_secrets=("site-login",)))
    job = job_from(image, config=config)
    centre.create(job)
    assert centre.ended(job.name, 90).exit_code == 3
    eventually(lambda: cluster.names(namespace, "pods,secrets") == {"site-login"})
