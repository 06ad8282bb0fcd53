"""docs/kubernetes.md, followed to the letter at a site that has nothing yet: a pod runs in the end.

The administrator of the cluster types kubectl on this machine, the one of the submitter's machine
all else on the login node of a site, which reaches the cluster by a cable of the site's own and
the NATS server through its border. The cluster's address is another one than the page's.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.lib.bed import cluster as chain_cluster
from scripts.lib.interlink import create_request
from scripts.lib.slurm.machines import Machine, began
from tests.sites.kubernetes.pool import ACCOUNT, MANIFEST, Cluster, job_of
from tests.sites.slurm.site import SlurmSite, running
from tests.support.kueue_bed import SCRIPT
from tests.support.nats_server import NatsServer
from tests.support.pages import Admin, Steps, centre_for
from tests.support.system import REPO, System
from tests.support.system import job_of as name_of
from tests.unit.submitter.rig import Centre, Submitter, eventually

STEPS = Steps("kubernetes.md")
NAMESPACE, POOL = "interlink", "cluster-b"
SERVER = "https://api.cluster-b.example.org:6443"


@pytest.fixture
def site(cluster: Cluster, tmp_path: Path) -> Iterator[SlurmSite]:
    """A login node, and the cluster, in which the page's namespace and names are free."""
    with running(tmp_path / "site", nodes=0, accounting=False) as one:
        pid = cluster.bed.machine
        chain_cluster.connect(one, Machine(pid, began(pid)))
        cluster.bed.kubectl("label", "node", "node1", "pool=batch")
        cluster.bed.kubectl("create", "priorityclass", "low", "--value=-1")
        yield one
    cluster.bed.kubectl("delete", "priorityclass", "low")
    cluster.bed.kubectl("label", "node", "node1", "pool-")
    cluster.bed.kubectl("delete", "namespace", NAMESPACE, seconds=180)


@pytest.fixture
def centre_there(site: SlurmSite, tmp_path: Path) -> Iterator[System]:
    with centre_for(site, tmp_path, POOL) as found:
        yield found


class Kubectl:
    """Who types kubectl in a checkout of the repository, with files in a folder."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._folder = folder
        (folder / "docs").symlink_to(REPO / "docs")
        program = folder / "kubectl"
        program.write_text(
            f'#!/bin/bash\nexec {SCRIPT} kubectl --name {cluster.bed.name} -- "$@"\n'
        )
        program.chmod(0o755)

    def type(self, command: str) -> str:
        environment = {**os.environ, "PATH": f"{self._folder}:{os.environ['PATH']}"}
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout


def test_a_pod_runs_by_the_page(
    cluster: Cluster, site: SlurmSite, centre_there: System, tmp_path: Path
) -> None:
    commands, (kubeconfig, configuration, manifest) = STEPS.commands, STEPS.blocks("yaml")
    folder = tmp_path / "administrator"
    folder.mkdir()
    kubectl, admin = Kubectl(cluster, folder), Admin(site)
    for command in commands[:3]:
        kubectl.type(command)
    for name in ("cluster-b.crt", "cluster-b.token"):
        (folder / name).rename(site.home / name)
    admin.take("mysite.nkey", "cluster-b.crt", "cluster-b.token")
    for command in commands[3:8]:
        admin.type(command)
    assert SERVER in kubeconfig
    there = kubeconfig.replace(SERVER, "https://kubernetes:6443")
    admin.write("/etc/interlink/cluster-b.kubeconfig", there)
    admin.write("/etc/interlink/submitter.yaml", configuration)
    assert "backend kubernetes: offers cpu 64, " in admin.check(commands[8])
    admin.type(commands[9])
    centre_there.wait_until_ready()
    request: dict[str, Any] = create_request([("page", manifest)], POOL)
    centre_there.plugin.create(request)
    pod = request["pod"]
    centre_there.until(lambda: "running" in str(centre_there.status(pod)), "the pod runs", 90)
    (shown,) = kubectl.type(commands[10]).splitlines()[1:]
    assert shown.split()[:3] == [name_of(pod), "1/1", "Running"]
    spec = cluster.pod(NAMESPACE, name_of(pod))["spec"]
    assert (spec["nodeSelector"], spec["priorityClassName"]) == ({"pool": "batch"}, "low")
    (end,) = centre_there.ended(pod, 90)
    assert end["exitCode"] == 0
    assert centre_there.log(pod, "main") == b"hello from hello\n"
    assert len(commands) == 11
    assert yaml.safe_load(configuration)["pools"][0]["name"] == POOL


def test_a_token_that_has_run_out_is_read_again_as_the_page_says(
    nats: NatsServer, centre: Centre, cluster: Cluster, tmp_path: Path
) -> None:
    namespace = cluster.namespace()
    pool = cluster.pool(namespace)
    file, token = Path(pool["options"]["kubeconfig"]), tmp_path / "token"
    config = yaml.safe_load(file.read_text())
    token.write_text(config["users"][0]["user"]["token"])
    config["users"][0]["user"] = {"tokenFile": str(token)}
    file.write_text(yaml.safe_dump(config))
    submitter = Submitter(nats, tmp_path, **pool).until_ready(centre)
    try:
        job = job_of("sleep 8; exit 6")
        centre.create(job)
        centre.until(job.name, lambda s: s.containers[0].state.state == "running", 60)
        # The account is another one by now, although it is called alike: its tokens are, too.
        cluster.bed.kubectl("delete", "serviceaccount", ACCOUNT, "--namespace", namespace)
        cluster.bed.kill("apiserver")
        cluster.bed.start("apiserver")
        eventually(lambda: "Unauthorized" in submitter.words(), 60)
        cluster.bed.apply(MANIFEST.read_text().replace(": interlink\n", f": {namespace}\n"))
        token.write_text(cluster.bed.token(ACCOUNT, namespace))
        assert centre.ended(job.name, 90).exit_code == 6
    finally:
        submitter.stop(signal.SIGKILL)
        cluster.bed.kubectl("delete", "namespace", namespace, "--wait=false")
