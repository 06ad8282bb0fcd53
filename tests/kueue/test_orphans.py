"""Orphans, told by a real API server to a real plugin with a real site: the account is the one of
docs/security.md, the deletions are those that no virtual kubelet has passed on."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from tests.kueue_bed import REPO, KueueBed
from tests.system import Process, System, job_of, request_of, running

NAMESPACE = "interlink"
ACCOUNT = "interlink-plugin"
AFTER_S = 3
SLEEP = "trap 'exit 0' TERM; echo up; sleep 1000 & wait"


@pytest.fixture(scope="module")
def account(bed: KueueBed, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The plugin's settings for the account that the documentation gives it."""
    page = (REPO / "docs" / "security.md").read_text()
    (manifest,) = re.findall(r"```yaml\n(apiVersion: rbac.*?)```", page, re.DOTALL)
    metadata = {"name": ACCOUNT, "namespace": NAMESPACE}
    bed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    bed.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    folder = tmp_path_factory.mktemp("account")
    (folder / "ca").write_text(bed.authority)
    (folder / "token").write_text(bed.token(ACCOUNT, NAMESPACE))
    settings = {
        "api_server": bed.server,
        "token_file": str(folder / "token"),
        "ca_file": str(folder / "ca"),
        "after_s": AFTER_S,
    }
    return {"orphans": settings, "manifest": manifest}


@pytest.fixture(scope="module")
def orphans(bed: KueueBed, account: dict[str, Any]) -> dict[str, Any]:
    """With its rights."""
    bed.apply(account["manifest"])
    found: dict[str, Any] = account["orphans"]
    return found


def created(bed: KueueBed, system: System) -> dict[str, Any]:
    """A pod that Kubernetes has and will not schedule, and its job."""
    request = request_of(SLEEP)
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
    system.until(lambda: system.log(pod) == b"up\n", f"{job_of(pod)} runs")
    return pod


def removed(bed: KueueBed, pod: dict[str, Any]) -> None:
    """As who removes a node by force: the virtual kubelet never hears of it."""
    words = ("--namespace", NAMESPACE, "--force", "--grace-period=0")
    bed.kubectl("delete", "pod", pod["metadata"]["name"], *words)


def plugin_of(system: System) -> Process:
    return system.processes["plugin"]


def origin_is_known(system: System) -> bool:
    page = system.plugin.get("/metrics")
    return re.search(rb"^interlink_plugin_kubernetes_silent_seconds \d", page, re.M) is not None


def test_a_job_whose_pod_was_removed_by_force_is_cancelled(
    bed: KueueBed, orphans: dict[str, Any], tmp_path: Path
) -> None:
    room = {"resources": {"cpu": "8", "memory": "8Gi"}}
    with running(tmp_path, plugin={"orphans": orphans}, workers=2, pool=room) as system:
        system.until(lambda: origin_is_known(system), "Kubernetes has been asked")
        kept, lost, while_away = (created(bed, system) for _ in range(3))
        removed(bed, lost)
        system.until(lambda: not system.directory(lost).exists(), "the orphan is removed")
        system.kill("plugin")
        removed(bed, while_away)
        system.plugin.close()
        system.start("plugin")
        system.until(lambda: not system.directory(while_away).exists(), "that one, too")
        assert system.log(kept) == b"up\n"
        status = system.status(kept)
        assert status is not None and "running" in status["containers"][0]["state"]
        assert f"{job_of(lost)}: cancelled as an orphan" in plugin_of(system).log()
        assert job_of(kept) not in "".join(
            line for line in plugin_of(system).log().splitlines() if "orphan" in line
        )


def test_an_api_server_that_is_away_says_nothing(
    bed: KueueBed, orphans: dict[str, Any], tmp_path: Path
) -> None:
    with running(tmp_path, plugin={"orphans": orphans}) as system:
        system.until(lambda: origin_is_known(system), "Kubernetes has been asked")
        pod = created(bed, system)
        bed.kill("apiserver")
        system.until(lambda: "orphans: https://" in plugin_of(system).log(), "it is missed")
        end = time.monotonic() + 3 * AFTER_S
        while time.monotonic() < end:
            assert system.directory(pod).exists()
            time.sleep(0.2)
        bed.start("apiserver")
        system.until(lambda: "Kubernetes answers again" in plugin_of(system).log(), "it is back")
        assert system.log(pod) == b"up\n"
        removed(bed, pod)
        system.until(lambda: not system.directory(pod).exists(), "now it is an orphan")


def test_without_the_right_the_log_says_which_is_missing(
    bed: KueueBed, account: dict[str, Any], tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(bed.token("default", NAMESPACE))
    settings = {**account["orphans"], "token_file": str(token)}
    (tmp_path / "system").mkdir()
    with running(tmp_path / "system", plugin={"orphans": settings}) as system:
        words = (
            'namespaces "kube-system" is forbidden: User "system:serviceaccount:interlink:default"'
        )
        system.until(lambda: words in plugin_of(system).log(), "the log says so")
