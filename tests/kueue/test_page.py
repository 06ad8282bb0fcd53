"""docs/kueue.md, followed as it stands: operator and NATS in the cluster, a real site outside."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.images import archive, libraries, python_image
from tests.support.kueue_bed import REPO, SCRIPT, KueueBed
from tests.support.kueue_operator import World
from tests.support.nats_server import NatsServer, program
from tests.unit.submitter.rig import Submitter

PAGE = REPO / "docs" / "kueue.md"
IMAGE = "registry.example.org/kueue-nats:0.1.0"  # the name in the example
NATS = "example.test/nats:1"
NEEDS = ["kubernetes", "prometheus-client", "nats-py", "aiohttp", "nkeys", "jinja2", "pyyaml"]
NEEDS += ["marshmallow"]

# As in the connector of the manifest that users have.
SERVER = f"""
apiVersion: v1
kind: Pod
metadata: {{name: nats, namespace: nats, labels: {{app: nats}}}}
spec:
  hostNetwork: true # so that the site, which is no pod, can reach it
  containers:
  - {{name: nats, image: "{NATS}", args: [--user, user, --pass, password]}}
---
apiVersion: v1
kind: Service
metadata: {{name: nats, namespace: nats}}
spec: {{selector: {{app: nats}}, ports: [{{port: 4222}}]}}
"""


def steps() -> list[str]:
    """What the page has somebody type, block by block."""
    part = PAGE.read_text().partition("## Setting it up")[2].partition("### Other ways")[0]
    return re.findall(r"^```sh\n(.*?)^```", part, re.MULTILINE | re.DOTALL)


@pytest.fixture
def cluster(world: World, tmp_path: Path) -> Iterator[World]:
    """Images on the node, NATS in the cluster; our own operator rests, or it would lead."""
    server = Path(program())
    files = {"/nats-server": server, **libraries([server])}
    world.bed.load(archive(tmp_path / "nats.tar", NATS, files, ["/nats-server"]))
    world.bed.load(python_image(tmp_path / "operator.tar", IMAGE, "kueue_nats", NEEDS))
    world.operator.stop()
    world.bed.new_namespace("nats")
    world.bed.apply(SERVER)
    ready = ("wait", "--for=condition=Ready", "pod/nats", "--timeout=60s")
    world.bed.kubectl(*ready, "--namespace", "nats", seconds=90)
    yield world
    gone = ("--ignore-not-found", "--wait=false")
    world.bed.kubectl("delete", "mq", "masterqueue", *gone)
    world.bed.kubectl("delete", "namespace", "team-a", "nats", *gone)
    inside = ("--namespace", "kueue-nats")
    world.bed.kubectl("delete", "deployment", "kueue-nats", "--ignore-not-found", *inside)
    done = ("wait", "--for=delete", "pod", "--selector=app=kueue-nats", "--timeout=60s")
    world.bed.kubectl(*done, *inside, seconds=90)
    world.operator.start().until_up()


@pytest.fixture
def site(cluster: World, nats: NatsServer, tmp_path: Path) -> Iterator[Submitter]:
    """A site with one pool, which reaches NATS from outside."""
    password = tmp_path / "password"
    password.write_text("password")
    address = cluster.bed.server.removeprefix("https://").partition(":")[0]
    found = Submitter(nats, tmp_path, name="slurm-a")
    config = json.loads(found.config.read_text())
    config["nats"].update(user="user", password_file=str(password))
    config["nats"]["servers"] = [f"nats://{address}:4222"]
    found.config.write_text(json.dumps(config))
    found.start()
    yield found
    found.stop()


def test_the_page_can_be_followed_as_it_stands(
    cluster: World, site: Submitter, tmp_path: Path
) -> None:
    typed = tmp_path / "bin" / "kubectl"
    typed.parent.mkdir()
    typed.write_text(f'#!/bin/sh\nexec {SCRIPT} kubectl --name {cluster.bed.name} -- "$@"\n')
    typed.chmod(0o755)
    path = f"{typed.parent}:{os.environ['PATH']}"
    blocks, told = steps(), ""
    assert len(blocks) == 4
    for block in blocks:
        done = subprocess.run(
            ["bash", "-euxo", "pipefail", "-c", block],
            cwd=REPO,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, explained(cluster.bed, done.stderr)
        told += done.stdout
    bed = cluster.bed
    items = bed.get("workloads.kueue.x-k8s.io", namespace="team-a")["items"]
    admitted = {
        item["metadata"]["ownerReferences"][0]["name"]: {
            flavor
            for one in item["status"]["admission"]["podSetAssignments"]
            for flavor in one["flavors"].values()
        }
        for item in items
    }
    assert admitted == {"there": {"masterqueue.interlink.slurm-a"}, "here": {"local-cpu"}}
    assert "PoolActive" in told  # kubectl describe shows the Events
    words = bed.kubectl("logs", "deployment/kueue-nats", "--namespace", "kueue-nats")
    assert all(json.loads(line) for line in words.splitlines())
    assert "password" not in words


def explained(bed: KueueBed, words: str) -> str:
    """What went wrong, with what the operator says of it."""
    inside = ("--namespace", "kueue-nats")
    pods = bed.kubectl("describe", "pods", *inside)
    logs = bed.kubectl("logs", "--selector=app=kueue-nats", "--tail=50", *inside)
    return "\n".join((words, pods, logs, bed.kubectl("get", "mq", "--output=yaml")))
