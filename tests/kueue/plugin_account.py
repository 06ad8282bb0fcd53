"""The plugin's own account in a bed, and pods that are there for it to find."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.support.kueue_bed import REPO, KueueBed
from tests.support.system import System, request_of

NAMESPACE = "interlink"
ACCOUNT = "interlink-plugin"
AFTER_S = 3
SLEEP = "trap 'exit 0' TERM; echo up; sleep 1000 & wait"


def settings(bed: KueueBed, folder: Path) -> dict[str, Any]:
    """The plugin's settings for the account that the documentation gives it, without its rights."""
    metadata = {"name": ACCOUNT, "namespace": NAMESPACE}
    bed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    bed.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    (folder / "ca").write_text(bed.authority)
    (folder / "token").write_text(bed.token(ACCOUNT, NAMESPACE))
    return {
        "api_server": bed.server,
        "token_file": str(folder / "token"),
        "ca_file": str(folder / "ca"),
        "after_s": AFTER_S,
    }


def rights() -> str:
    """What the documentation lets that account do."""
    page = (REPO / "docs" / "security.md").read_text()
    (manifest,) = re.findall(r"```yaml\n(apiVersion: rbac.*?)```", page, re.DOTALL)
    return str(manifest)


def knows_its_cluster(system: System) -> bool:
    """Whether the plugin has asked Kubernetes; jobs of before are nobody's orphans."""
    page = system.plugin.get("/metrics")
    return re.search(rb"^interlink_plugin_kubernetes_silent_seconds \d", page, re.M) is not None


def created(bed: KueueBed, system: System, command: str = SLEEP) -> dict[str, Any]:
    """A pod that Kubernetes has and will not schedule, and its job."""
    request = request_of(command)
    pod: dict[str, Any] = request["pod"]
    name = pod["metadata"]["name"]
    spec = {
        "schedulingGates": [{"name": "tests/gate"}],
        "containers": [{"name": "c0", "image": "busybox"}],
    }
    metadata = {"name": name, "namespace": NAMESPACE}
    bed.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    found = bed.get("pod", name, namespace=NAMESPACE)
    pod["metadata"].update(uid=found["metadata"]["uid"], namespace=NAMESPACE)
    system.plugin.create(request)
    return pod


def removed(bed: KueueBed, pod: dict[str, Any]) -> None:
    """As who removes a node by force: the virtual kubelet never hears of it."""
    words = ("--namespace", NAMESPACE, "--force", "--grace-period=0")
    bed.kubectl("delete", "pod", pod["metadata"]["name"], *words)
