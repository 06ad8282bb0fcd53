"""The chart in a bed: images from our Dockerfiles, a release behind Traefik, and a site outside."""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path

import yaml

from scripts.lib import certificates
from templates.nats import permissions
from tests.chart.helm import CHART, NAMESPACE, RELEASE, REPO, Json, helm
from tests.support.kueue_api import Refused
from tests.support.kueue_bed import KueueBed, part, until
from tests.support.nats_server import program
from tests.support.system import Process

IMAGES = REPO / "scripts" / "lib" / "chart" / "images.sh"
REGISTRY = "registry.example.org/interlink"
OURS = {
    "interlink-nats-plugin": "interlink-plugin",
    "interlink-nats-submitter": "interlink-submitter",
    "interlink-nats-submitter-condor": "interlink-submitter",
    "kueue-nats": "kueue-nats",
}
HOST = "nats.example.org"
SITE, POOL = "lab", "lab-pool"
NODE_PORT = 30443
NAME = f"{RELEASE}-interlink-nats"
CERTIFICATE = "websocket"  # the Secret that cert-manager would fill
WAIT = ("--wait", "--timeout", "3m")


def load_images(bed: KueueBed) -> None:
    """Build all images, and give them to the bed's node."""
    done = subprocess.run(
        [str(IMAGES), program(), str(part("interlink"))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    for archive in sorted(Path(done.stdout.strip()).glob("*.tar")):
        bed.load(archive)


def image(name: str) -> Json:
    """One that is on the bed's node."""
    return {"image": {"repository": f"{REGISTRY}/{name}", "tag": "test"}}


def in_a_bed(host: str) -> Json:
    """Values for any release: images that are there, and Traefik in front."""
    return {
        "images": {"registry": REGISTRY, "pullPolicy": "Never"},
        "hostname": host,
        "ingress": {"className": "traefik", "tls": {"secretName": CERTIFICATE}},
        "nats": image("nats"),
        "virtualNode": {
            "interlink": image("interlink"),
            "virtualKubelet": image("virtual-kubelet"),
        },
    }


def values() -> Json:
    """Of a release with a virtual node and one site."""
    base = in_a_bed(HOST)
    return {
        **base,
        "nats": {**base["nats"], "sites": [{"name": SITE, "pools": [POOL]}]},
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
    """The chart, installed; ``folder`` has its certificate."""

    name, namespace = RELEASE, NAMESPACE

    def __init__(self, bed: KueueBed, folder: Path, values: Json) -> None:
        self.bed = bed
        self.folder = folder
        self.values = values

    def helm(self, *words: str, seconds: float = 240) -> str:
        """What helm says; it has to succeed."""
        given = self.values if words[0] in ("install", "upgrade") else None
        done = helm(
            *words,
            "--namespace",
            self.namespace,
            values=given,
            kubeconfig=self.bed.kubeconfig,
            seconds=seconds,
        )
        assert done.returncode == 0, f"{done.stdout}{done.stderr}{self.troubles()}"
        return done.stdout

    def install(self) -> None:
        """With a certificate for the name by which it is reached from outside."""
        own = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        self.bed.apply(own)
        self.give_certificate(CERTIFICATE)
        self.helm("install", self.name, str(CHART), *WAIT)

    def give_certificate(self, name: str) -> None:
        """Fill the Secret that cert-manager would fill."""
        certificates.make(self.folder, (self.values["hostname"], self.address))
        self.secret(
            name, **{"tls.crt": self.folder / "cert.pem", "tls.key": self.folder / "key.pem"}
        )

    def secret(self, name: str, **files: Path) -> None:
        """A Secret of files."""
        self.bed.apply(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": name, "namespace": self.namespace},
                "stringData": {key: file.read_text() for key, file in files.items()},
            }
        )

    def upgrade(self) -> None:
        """To the values as they are by now."""
        self.helm("upgrade", self.name, str(CHART), *WAIT)

    def uninstall(self) -> None:
        """Take it away, unless that has been done."""
        if self.helm("list", "--short").strip():
            self.helm("uninstall", self.name, "--wait")

    def test(self, pods: int = 2) -> None:
        """As a user does, who then sees that so many pods have succeeded."""
        told = self.helm("test", self.name, "--timeout", "3m")
        assert told.count("Phase:          Succeeded") == pods, told

    @property
    def address(self) -> str:
        """Of the bed's node, where this machine can reach it."""
        addresses = self.bed.get("node", "node1")["status"]["addresses"]
        (found,) = (a["address"] for a in addresses if a["type"] == "InternalIP")
        return str(found)

    def kubectl(self, *words: str) -> str:
        return self.bed.kubectl("--namespace", self.namespace, *words)

    def troubles(self) -> str:
        """What pods and their containers say, for who has to find out."""
        told = ["", self.kubectl("get", "pods", "--output=wide")]
        told.append(self.kubectl("get", "events", "--sort-by=.lastTimestamp")[-4000:])
        for pod in self.bed.get("pods", namespace=self.namespace)["items"]:
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
            data = self.bed.get("secret", name, namespace=self.namespace)["data"]
            found[name] = {key: base64.b64decode(text).decode() for key, text in data.items()}
        return found

    def containers(self) -> list[Json]:
        """The states of all containers of its pods, sidecars too."""
        kinds = ("initContainerStatuses", "containerStatuses")
        return [
            state
            for pod in self.bed.get("pods", namespace=self.namespace)["items"]
            for kind in kinds
            for state in pod["status"].get(kind, [])
        ]

    def until_of_use(self) -> None:
        """The virtual node is ready, and Kueue knows what the site offers."""
        until(self._node_is_ready, 120, "the virtual node")
        until(self._pool_is_alive, 60, "the pool in the MasterQueue")

    def _node_is_ready(self) -> bool:
        conditions = self.bed.get("node", "interlink")["status"]["conditions"]
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    def _pool_is_alive(self) -> bool:
        status = self.bed.get("masterqueue", "masterqueue").get("status", {})
        return bool(status.get("poolsAlive") == 1)


def knowing(release: Release, *command: str) -> list[str]:
    """A command of this machine, outside of the cluster, that finds the Ingress by its name."""
    hosts = release.folder / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n{release.address} {release.values['hostname']}\n")
    line = 'mount --bind "$0" /etc/hosts && exec "$@"'
    apart = ["unshare", "--mount", "--propagation", "private", "sh", "-c", line, str(hosts)]
    return [*apart, *command]


def submitter(release: Release, url: str) -> Process:
    """A submitter outside, whose pool runs jobs on this machine."""
    folder = release.folder
    password = folder / "password"
    password.touch(mode=0o600)
    password.write_text(release.password())
    pool = folder / "pool"
    pool.mkdir(mode=0o700, exist_ok=True)
    config = {
        "nats": {
            "servers": [url],
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
                "policy": {"namespaces": ["*"]},
                "timing": {"poll_s": 1, "resources_s": 5},
            }
        ],
    }
    file = folder / "submitter.yaml"
    file.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "submitter", "--config", str(file)]
    return Process("submitter", knowing(release, *command), folder)
