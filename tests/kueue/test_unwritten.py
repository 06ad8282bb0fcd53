"""Ends that interLink has not written down, in a real API server: the pods here have no virtual
kubelet at all, so that nobody writes down any."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from plugin_server.kubernetes.client import PodApi, PodChanged
from tests.kueue.plugin_account import NAMESPACE, created, knows_its_cluster
from tests.support.kueue_bed import KueueBed
from tests.support.system import System, job_of, running


def shown(bed: KueueBed, pod: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = bed.get("pod", pod["metadata"]["name"], namespace=NAMESPACE)
    return found


def phase(bed: KueueBed, pod: dict[str, Any]) -> str:
    return str(shown(bed, pod)["status"]["phase"])


def plugin_log(system: System) -> str:
    return system.processes["plugin"].log()


def counted(system: System) -> float:
    """How many ends the plugin says that it has written."""
    page = system.plugin.get("/metrics").decode()
    found = re.search(r"^interlink_plugin_ends_written_total\{.*\} (\S+)$", page, re.M)
    return float(found[1]) if found else 0


def test_an_end_that_nobody_writes_down_is_written_by_the_plugin(
    bed: KueueBed, orphans: dict[str, Any], tmp_path: Path
) -> None:
    settings = {**orphans, "end_after_s": 1}
    with running(tmp_path, plugin={"orphans": settings}, workers=2) as system:
        system.until(lambda: knows_its_cluster(system), "Kubernetes has been asked")
        good = created(bed, system, "echo done")
        bad = created(bed, system, "echo wrong; exit 3")
        lives = created(bed, system)
        system.until(lambda: phase(bed, good) == "Succeeded", "the one is over")
        system.until(lambda: phase(bed, bad) == "Failed", "the other, too")
        status = shown(bed, bad)["status"]
        (container,) = status["containerStatuses"]
        end = container["state"]["terminated"]
        assert (end["exitCode"], end["reason"], status["reason"]) == (3, "Error: 3", "Error: 3")
        assert end["startedAt"] and end["finishedAt"] and not container["ready"]
        assert "written by the plugin" in status["message"]
        assert phase(bed, lives) == "Pending"
        told = f"{job_of(bad)}: pod {NAMESPACE}/{bad['metadata']['name']} has ended as Failed"
        system.until(lambda: told in plugin_log(system), "it is logged")
        system.until(lambda: counted(system) >= 2, "both are counted")
        # By one of the two workers, and once.
        assert (counted(system), plugin_log(system).count(told)) == (2, 1)


def test_without_the_right_the_log_says_which_is_missing(
    bed: KueueBed, orphans: dict[str, Any], tmp_path: Path
) -> None:
    name = "lists-only"
    bed.kubectl("create", "serviceaccount", name, "--namespace", NAMESPACE)
    bed.kubectl("create", "clusterrole", name, "--verb=list", "--resource=pods")
    bed.kubectl("create", "clusterrole", f"{name}-2", "--verb=get", "--resource=namespaces")
    for role in (name, f"{name}-2"):
        bound = f"--serviceaccount={NAMESPACE}:{name}"
        bed.kubectl("create", "clusterrolebinding", role, f"--clusterrole={role}", bound)
    token = tmp_path / "token"
    token.write_text(bed.token(name, NAMESPACE))
    settings = {**orphans, "token_file": str(token), "end_after_s": 1}
    (tmp_path / "system").mkdir()
    with running(tmp_path / "system", plugin={"orphans": settings}) as system:
        system.until(lambda: knows_its_cluster(system), "Kubernetes has been asked")
        pod = created(bed, system, "true")
        words = 'cannot get resource "pods"'
        system.until(lambda: words in plugin_log(system), "the log says so")
        assert phase(bed, pod) == "Pending"


@pytest.fixture
def cluster(bed: KueueBed, orphans: dict[str, Any]) -> PodApi:
    return PodApi(bed.server, orphans["token_file"], orphans["ca_file"])


def test_a_pod_that_has_changed_since_it_was_read_is_left_alone(
    bed: KueueBed, cluster: PodApi
) -> None:
    name = "changes"
    spec = {
        "schedulingGates": [{"name": "tests/gate"}],
        "containers": [{"name": "c0", "image": "busybox"}],
    }
    metadata = {"name": name, "namespace": NAMESPACE}
    bed.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    found = cluster.read_pod(NAMESPACE, name)
    assert found is not None and found["metadata"]["uid"] in cluster.list_unended_pod_uids()
    bed.kubectl("annotate", "pod", name, "--namespace", NAMESPACE, "a=b")
    with pytest.raises(PodChanged):
        cluster.write_status(found, {"phase": "Failed"})
    again = cluster.read_pod(NAMESPACE, name)
    assert again is not None
    cluster.write_status(again, {"phase": "Failed"})
    assert found["metadata"]["uid"] not in cluster.list_unended_pod_uids()
    assert found["metadata"]["uid"] in cluster.list_pod_uids()
    words = ("--namespace", NAMESPACE, "--force", "--grace-period=0")
    bed.kubectl("delete", "pod", name, *words)
    assert cluster.read_pod(NAMESPACE, name) is None
    with pytest.raises(PodChanged):
        cluster.write_status(again, {"phase": "Failed"})
