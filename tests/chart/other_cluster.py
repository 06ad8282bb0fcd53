"""What a release with condor.enabled has around it: a computing element, issuers, another cluster.

The element is a site of scripts/condor-site with a cable to the bed, the other cluster a virtual
kubelet that is outside, and has its node in the bed as somebody has to make pods for it.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import yaml

from scripts.lib.condor.files import DOMAIN, IAM, places_of
from scripts.lib.interlink import free_port
from scripts.lib.slurm.files import OUTSIDE
from tests.chart.installed import Release, knowing
from tests.sites.htcondor.element import Element
from tests.support.kueue_bed import SCRIPT, KueueBed, part, until
from tests.support.oidc import Issuer
from tests.support.system import Process

NODE = "far"
FRONT = "iam.front.test"  # the issuer whose tokens virtual kubelets bring
USER = 65532  # of all that the chart runs
OF_BED = "10.77.0.200"  # the bed in the element's network
MASQUERADE = "add rule ip bed out ip saddr 10.244.0.0/24 oifname lan masquerade"


def inside(bed: KueueBed, *words: str) -> None:
    """Run a command on the bed's node."""
    command = [str(SCRIPT), "enter", "--name", bed.name, "--", *words]
    subprocess.run(command, check=True, timeout=60)


def join(bed: KueueBed, element: Element) -> None:
    """Put a cable between the bed and the element, and tell the bed's DNS of who is there."""
    facts = (bed.kubeconfig.parent / "facts").read_text().splitlines()
    machine = next(line.partition("=")[2] for line in facts if line.startswith("machine="))
    there = ["nsenter", "--target", str(element.building.pid), "--net", "--", "ip", "link"]
    cable = ["add", "bed", "type", "veth", "peer", "name", "lan", "netns", machine]
    for words in (cable, ["set", "bed", "master", "site", "up"]):
        subprocess.run([*there, *words], check=True, timeout=60)
    inside(bed, "ip", "address", "add", f"{OF_BED}/24", "dev", "lan")
    inside(bed, "ip", "link", "set", "lan", "up")
    inside(bed, "nft", *MASQUERADE.split())
    places = places_of(element.nodes, element=True)
    lines = [f"{address} {name}.{DOMAIN}" for name, address in places.items() if name != OUTSIDE]
    lines += [f"{places['ctl']} {IAM}", f"{bed.host} {FRONT}"]
    corefile = bed.kubeconfig.parent / "etc" / "Corefile"
    known = "".join(f"        {line}\n" for line in lines)
    text = corefile.read_text().replace(
        "    errors\n", f"    errors\n    hosts {{\n{known}        fallthrough\n    }}\n"
    )
    corefile.write_text(text)
    bed.stop("coredns")
    bed.start("coredns")


def make_volume(bed: KueueBed) -> None:
    """For the submitter's claim; on a disk, as the bed's own /var is not."""
    folder = bed.kubeconfig.parent / "element"
    folder.mkdir(mode=0o700)
    os.chown(folder, USER, USER)
    spec = {
        "capacity": {"storage": "10Gi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": str(folder)},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    metadata = {"name": "element"}
    bed.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec})


def virtual_kubelet(release: Release, issuer: Issuer, client: str) -> Process:
    """One of another cluster, with a token that is good for as long as the test takes."""
    folder = release.folder / "far"
    folder.mkdir()
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(issuer.sign("a-virtual-kubelet", "openid", client, 3600))
    settings = {
        "InterlinkURL": f"https://{release.values['hostname']}",
        "InterlinkPort": "443",
        "VKTokenFile": str(token),
        "VerboseLogging": False,
        "Resources": {"CPU": "100", "Memory": "1Ti", "Pods": "100"},
        "HTTP": {"Insecure": True},
        "KubeletHTTP": {"Insecure": True},
        "DisableCSR": True,
    }
    file = folder / "virtual-kubelet.yaml"
    file.write_text(yaml.safe_dump(settings))
    return Process(
        "virtual-kubelet",
        knowing(release, str(part("interlink") / "virtual-kubelet")),
        folder,
        CONFIGPATH=str(file),
        KUBECONFIG=str(release.bed.kubeconfig),
        NODENAME=NODE,
        KUBELET_PORT=str(free_port()),
        KUBELET_URL=release.bed.host,
        POD_IP=release.bed.host,
        SSL_CERT_FILE=str(release.folder / "ca.pem"),
        NO_PROXY="*",
    )


def until_ready(bed: KueueBed) -> None:
    def ready() -> bool:
        conditions = bed.get("node", NODE)["status"]["conditions"]
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    until(ready, 120, f"the node {NODE}")


def pod(name: str, script: str) -> dict[str, object]:
    """One of the other cluster's, which names no pool."""
    container = {"name": "main", "image": "busybox:1.36", "command": ["sh", "-c", script]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "nodeSelector": {"kubernetes.io/hostname": NODE},
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
        },
    }


def front(folder: Path) -> Issuer:
    return Issuer(folder, FRONT)
