"""docs/install.md, followed as it stands, from an empty cluster to a pod that ran at a site.

What a bed cannot have stands in for it: images are on the node already, the certificate is put
where cert-manager would put it, and the site's batch system is the site's own machine.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.chart.helm import REPO, Json
from tests.chart.installed import REGISTRY, Release, in_a_bed, knowing
from tests.support.kueue_bed import KueueBed, part
from tests.support.system import Process

PAGE = (REPO / "docs" / "install.md").read_text(encoding="utf-8")
SITE = "hpc"


def block(language: str, words: str) -> str:
    """The one block of the page that has these words in it."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (found,) = (text for text in blocks if words in text)
    return str(found)


class PageRelease(Release):
    name = namespace = "interlink"

    def shell(self, commands: str) -> str:
        """Run what the page says to type; with helm, kubectl and the values of the page."""
        tools = self.folder / "bin"
        if not tools.exists():
            tools.mkdir()
            for tool, where in (("helm", "helm"), ("kubectl", "kubernetes")):
                (tools / tool).symlink_to(part(where) / tool)
            (self.folder / "chart").symlink_to(REPO / "chart")
            (self.folder / "values.yaml").write_text(yaml.safe_dump(self.values))
        environment = {
            **os.environ,
            "KUBECONFIG": str(self.bed.kubeconfig),
            "PATH": f"{tools}:{os.environ['PATH']}",
            "NO_PROXY": "*",
        }
        done = subprocess.run(
            ["bash", "-euc", commands],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == 0, f"{done.stdout}{done.stderr}{self.troubles()}"
        return done.stdout


def values() -> Json:
    """Those of the page; where images are on a bed's node, and how its Ingress is called."""
    page = yaml.safe_load(block("yaml", "  registry: registry.example.org/interlink\nhostname:"))
    assert page["images"]["registry"] == REGISTRY
    base = in_a_bed(page["hostname"])
    page["images"] = base["images"]
    page["ingress"]["className"] = base["ingress"]["className"]
    page["nats"] |= base["nats"]
    return {**page, "virtualNode": base["virtualNode"]}


@pytest.fixture
def release(bed: KueueBed, images: None, tmp_path: Path) -> Iterator[PageRelease]:
    found = PageRelease(bed, tmp_path, values())
    yield found
    found.uninstall()


def submitter(release: PageRelease, password: str) -> Process:
    """With the page's own submitter.yaml, and with paths that a test can have."""
    folder = release.folder
    file = folder / "nats.password"
    file.touch(mode=0o600)
    file.write_text(password)
    config = yaml.safe_load(block("yaml", "inbox_prefix: _INBOX_hpc"))
    config["nats"] |= {"password_file": str(file), "ca_file": str(folder / "ca.pem")}
    (pool,) = config["pools"]
    (folder / "pool").mkdir(mode=0o700)
    pool |= {"directory": str(folder / "pool"), "backend": "host"}
    pool |= {"build": {"runtime": {"name": "host"}}, "policy": {"namespaces": ["*"]}}
    path = folder / "submitter.yaml"
    path.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "submitter", "--config", str(path)]
    return Process("submitter", knowing(release, *command), folder)


def test_a_stranger_gets_to_a_pod_that_ran(release: PageRelease) -> None:
    install, ready = block("sh", "helm install interlink").splitlines()
    told = release.shell(install)
    release.give_certificate("interlink-interlink-nats-websocket-tls")
    release.shell(ready)
    assert f"Take this password to the site {SITE}" in told
    site = submitter(release, release.shell(block("sh", "kubectl get secret")))
    site.start()
    try:
        told = release.shell(block("sh", "helm test interlink"))
        assert told.count("Phase:          Succeeded") == 2, told
    finally:
        assert site.stop() == 0, site.log()
