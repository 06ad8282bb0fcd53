"""The chart in a bed: images from our Dockerfiles, a release, and a site outside."""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path

import yaml

from scripts.lib import certificates
from templates import permissions
from tests.chart.helm import CHART, NAMESPACE, RELEASE, REPO, Json, helm
from tests.kueue_api import Refused
from tests.kueue_bed import KueueBed
from tests.nats_server import program
from tests.system import Process

IMAGES = REPO / "scripts" / "lib" / "chart-images.sh"
REGISTRY = "registry.example.org/interlink"
OURS = {
    "interlink-nats-plugin": "interlink-plugin",
    "interlink-nats-submitter": "interlink-submitter",
    "interlink-nats-submitter-condor": "interlink-submitter",
    "kueue-nats": "kueue-nats",
}
SITE, POOL = "lab", "lab-pool"
NODE_PORT = 30443
NAME = f"{RELEASE}-interlink-nats"


def load_images(bed: KueueBed, folder: Path) -> None:
    """Build all images, and give them to the bed's node."""
    done = subprocess.run(
        [str(IMAGES), str(folder), program()], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    for archive in sorted(folder.glob("*.tar")):
        bed.load(archive)
        archive.unlink()


def values(bed: KueueBed) -> Json:
    """For a bed: images that are there, and the NATS server's own TLS at a port of the node."""

    def image(name: str) -> Json:
        return {"image": {"repository": f"{REGISTRY}/{name}", "tag": "test"}}

    return {
        "images": {"registry": REGISTRY, "pullPolicy": "Never"},
        "ingress": {"enabled": False},
        "virtualNode": {
            "interlink": image("interlink"),
            "virtualKubelet": image("virtual-kubelet"),
        },
        "nats": {
            **image("nats"),
            "sites": [{"name": SITE, "pools": [POOL]}],
            "websocket": {"tlsSecret": "websocket"},
            "service": {"type": "NodePort", "nodePort": NODE_PORT},
        },
        "masterQueue": {
            "enabled": True,
            "spec": {
                "template": {"cohort": "masterqueue"},
                "flavors": [
                    {
                        "name": "sites",
                        "natsFlavor": {
                            "natsSubject": "interlink.resources",
                            "virtualNode": "interlink",
                            "poolTimeout": 30,
                            "poolRegExp": ".*",
                        },
                        "nominalQuota": {"pods": 100},
                    }
                ],
            },
        },
        "test": {"pool": POOL},
    }


class Release:
    """The chart, installed."""

    def __init__(self, bed: KueueBed, folder: Path) -> None:
        self.bed = bed
        self.folder = folder
        self.values = values(bed)

    def helm(self, *words: str, seconds: float = 240) -> str:
        """What helm says; it has to succeed."""
        given = self.values if words[0] in ("install", "upgrade") else None
        done = helm(
            *words,
            "--namespace",
            NAMESPACE,
            values=given,
            kubeconfig=self.bed.kubeconfig,
            seconds=seconds,
        )
        assert done.returncode == 0, f"{done.stdout}{done.stderr}{self.troubles()}"
        return done.stdout

    def uninstall(self) -> None:
        """Take it away, unless that has been done."""
        if self.helm("list", "--short").strip():
            self.helm("uninstall", RELEASE, "--wait")

    def install(self) -> None:
        """With a certificate for the name that the site uses."""
        certificates.make(self.folder, (self.address,))
        self.bed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        pem = {
            "tls.crt": (self.folder / "cert.pem").read_text(),
            "tls.key": (self.folder / "key.pem").read_text(),
        }
        self.bed.apply(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "websocket", "namespace": NAMESPACE},
                "stringData": pem,
            }
        )
        self.helm("install", RELEASE, str(CHART), "--wait", "--timeout", "3m")

    @property
    def address(self) -> str:
        """Of the bed's node, where this machine can reach it."""
        addresses = self.bed.get("node", "node1")["status"]["addresses"]
        (found,) = (a["address"] for a in addresses if a["type"] == "InternalIP")
        return str(found)

    def kubectl(self, *words: str) -> str:
        return self.bed.kubectl("--namespace", NAMESPACE, *words)

    def troubles(self) -> str:
        """What pods and their containers say, for who has to find out."""
        told = ["", self.kubectl("get", "pods", "--output=wide")]
        told.append(self.kubectl("get", "events", "--sort-by=.lastTimestamp")[-4000:])
        for pod in self.bed.get("pods", namespace=NAMESPACE)["items"]:
            name = pod["metadata"]["name"]
            try:
                told.append(self.kubectl("logs", name, "--all-containers", "--prefix")[-3000:])
            except Refused as refused:
                told.append(str(refused))
        return "\n".join(told)

    def password(self) -> str:
        """As NOTES.txt says how to read it."""
        template = f'{{{{index .data "{SITE}" | base64decode}}}}'
        return self.kubectl(
            "get", "secret", f"{NAME}-nats-users", f"--output=go-template={template}"
        )

    def secrets(self) -> dict[str, dict[str, str]]:
        """What was made at random."""
        found = {}
        for name in (f"{NAME}-nats-users", f"{NAME}-nats-tls"):
            data = self.bed.get("secret", name, namespace=NAMESPACE)["data"]
            found[name] = {key: base64.b64decode(text).decode() for key, text in data.items()}
        return found

    def node_is_ready(self) -> bool:
        conditions = self.bed.get("node", "interlink")["status"]["conditions"]
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def submitter(release: Release) -> Process:
    """A submitter of this machine, outside of the cluster; its pool runs jobs here."""
    folder = release.folder
    password = folder / "password"
    password.touch(mode=0o600)
    password.write_text(release.password())
    pool = folder / "pool"
    pool.mkdir(mode=0o700)
    config = {
        "nats": {
            "servers": [f"wss://{release.address}:{NODE_PORT}"],
            "inbox_prefix": permissions.inbox_of(SITE),
            "user": SITE,
            "password_file": str(password),
            "ca_file": str(folder / "ca.pem"),
        },
        "pools": [
            {
                "name": POOL,
                "directory": str(pool),
                "backend": "host",
                "resources": {"cpu": "4", "memory": "4Gi", "pods": "10"},
                "build": {"runtime": {"name": "host"}},
                "timing": {"poll_s": 1, "resources_s": 5},
            }
        ],
    }
    file = folder / "submitter.yaml"
    file.write_text(yaml.safe_dump(config))
    return Process("submitter", [sys.executable, "-m", "submitter", "--config", str(file)], folder)
