"""What accounts of the chart may change, asked of a real API server in their names.

Roles say which kinds; the admission policies say which objects. Each account does the same acts to
what is its own, which pass, and to what is others', which do not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.chart.helm import EVERYTHING, MINIMAL, RELEASE, text_of
from tests.support.kueue_api import Refused
from tests.support.kueue_bed import KueueBed, until

NAMESPACE = "admission"  # the release is not that of other tests, which helm would take for its own
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{RELEASE}-interlink-nats"
OURS, OTHERS = "cpu", "somebodys"  # nodes; the release has "gpu", too
KINDS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
# kubectl reads what it is to patch, which these two do not.
READING = f"""
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: tests-reading}}
rules:
- {{apiGroups: [kueue.x-k8s.io], resources: ["*"], verbs: [get]}}
- {{apiGroups: [""], resources: [pods/status], verbs: [get]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: tests-reading}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tests-reading}}
subjects:
- {{apiGroup: rbac.authorization.k8s.io, kind: User, name: "{ACCOUNT}-kueue"}}
- {{apiGroup: rbac.authorization.k8s.io, kind: User, name: "{ACCOUNT}-orphans"}}
"""
MASTER = {"apiVersion": "vk.io/v1", "kind": "MasterQueue"}


def pod_on(node: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"on-{node}", "namespace": NAMESPACE},
        "spec": {
            "nodeName": node,
            "tolerations": [{"operator": "Exists"}],
            "automountServiceAccountToken": False,
            "containers": [{"name": "c", "image": "busybox:1.36"}],
        },
    }


def queue(name: str, owner: str = "") -> dict[str, Any]:
    owners = [{**MASTER, "name": "masterqueue", "uid": owner}] if owner else []
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": name, "ownerReferences": owners},
        "spec": {"namespaceSelector": {}},
    }


@pytest.fixture(scope="module")
def release(bed: KueueBed) -> Iterator[KueueBed]:
    """A cluster with the accounts and policies of a release, two nodes and two queues."""
    everything = yaml.safe_load_all(text_of(EVERYTHING, "--namespace", NAMESPACE))
    wanted = [found for found in everything if found and found["kind"] in (*KINDS, *POLICIES)]
    bed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    for item in wanted:
        item["metadata"].setdefault("namespace", NAMESPACE)
    bed.apply(*wanted, READING)
    for node in (OURS, OTHERS):
        bed.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}, pod_on(node))
    master = {
        **MASTER,
        "metadata": {"name": "masterqueue"},
        "spec": EVERYTHING["masterQueue"]["spec"],
    }
    bed.apply(master)
    uid = bed.get("masterqueue", "masterqueue")["metadata"]["uid"]
    bed.apply(queue("ours", uid), queue("somebodys"))
    # Policies count a moment after they are made.
    until(lambda: refusal(bed, "orphans", *status_of(OTHERS)))
    yield bed
    bed.kubectl("delete", "--wait=false", "-f", "-", input=yaml.safe_dump_all(wanted))
    bed.kubectl("delete", "clusterqueue", "ours", "somebodys")
    bed.kubectl("delete", "masterqueue", "masterqueue")
    # No kubelet would say that they have ended.
    bed.kubectl("delete", "pod", "--all", "--namespace", NAMESPACE, "--force", "--grace-period=0")
    bed.kubectl("delete", "node", OURS, OTHERS)
    bed.kubectl("delete", "namespace", NAMESPACE)


def act(bed: KueueBed, account: str, *words: str, text: str = "") -> str:
    return bed.kubectl(*words, f"--as={ACCOUNT}-{account}", "--dry-run=server", input=text)


def refusal(bed: KueueBed, account: str, *words: str, text: str = "") -> str:
    """What the API server says against it; empty when it lets it pass."""
    try:
        act(bed, account, *words, text=text)
    except Refused as refused:
        return str(refused)
    return ""


def patch(what: str, name: str, change: dict[str, Any], *words: str) -> tuple[str, ...]:
    kind = ("--type=merge", f"--patch={json.dumps(change)}")
    return ("patch", what, name, *kind, "--namespace", NAMESPACE, *words)


def status_of(node: str) -> tuple[str, ...]:
    return patch("pod", f"on-{node}", {"status": {"phase": "Failed"}}, "--subresource=status")


def acts_on_pods(node: str) -> list[tuple[str, ...]]:
    return [
        status_of(node),
        patch("pod", f"on-{node}", {"metadata": {"labels": {"a": "b"}}}),
        ("delete", "pod", f"on-{node}", "--namespace", NAMESPACE),
    ]


def test_a_virtual_kubelet_changes_pods_of_its_node_only(release: KueueBed) -> None:
    for words in acts_on_pods(OURS):
        act(release, "cpu", *words)
    for account, node in (("cpu", OTHERS), ("gpu", OTHERS), ("gpu", OURS)):
        for words in acts_on_pods(node):
            told = refusal(release, account, *words)
            assert f"{ACCOUNT}-{account} is for the virtual nodes {account}, and not for" in told


def test_a_virtual_kubelet_makes_its_own_node_only(release: KueueBed) -> None:
    def node(name: str) -> str:
        return json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})

    act(release, "gpu", "create", "-f", "-", text=node("gpu"))
    assert "not for control-plane-2" in refusal(
        release, "gpu", "create", "-f", "-", text=node("control-plane-2")
    )


def test_the_plugin_writes_down_ends_on_its_nodes_only(release: KueueBed) -> None:
    act(release, "orphans", *status_of(OURS))
    told = refusal(release, "orphans", *status_of(OTHERS))
    assert "is for the virtual nodes cpu, and not for somebodys" in told


@pytest.mark.parametrize("kind", ["clusterqueue", "resourceflavor"])
def test_the_operator_changes_what_a_masterqueue_owns_only(release: KueueBed, kind: str) -> None:
    change = {"metadata": {"labels": {"a": "b"}}}
    if kind == "resourceflavor":
        spec = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor"}
        release.apply({**spec, "metadata": {"name": "somebodys"}})
    else:
        act(release, "kueue", *patch(kind, "ours", change))
        act(release, "kueue", "delete", kind, "ours")
    for words in (patch(kind, "somebodys", change), ("delete", kind, "somebodys")):
        told = refusal(release, "kueue", *words)
        assert "may change only what a MasterQueue owns, and not somebodys" in told


def test_the_operator_makes_nothing_that_no_masterqueue_owns(release: KueueBed) -> None:
    text = json.dumps(queue("another"))
    told = refusal(release, "kueue", "create", "-f", "-", text=text)
    assert "may change only what a MasterQueue owns, and not another" in told
    owner = release.get("masterqueue", "masterqueue")["metadata"]["uid"]
    act(release, "kueue", "create", "-f", "-", text=json.dumps(queue("another", owner)))


def test_the_operator_cannot_take_what_is_anothers(release: KueueBed) -> None:
    uid = release.get("masterqueue", "masterqueue")["metadata"]["uid"]
    taken = queue("somebodys", uid)["metadata"]["ownerReferences"]
    words = patch("clusterqueue", "somebodys", {"metadata": {"ownerReferences": taken}})
    assert "and not somebodys" in refusal(release, "kueue", *words)


def test_others_are_left_alone(release: KueueBed) -> None:
    """The policies judge accounts of the release; the admin and other programs do as before."""
    for words in acts_on_pods(OTHERS):
        release.kubectl(*words, "--dry-run=server")


def test_without_them_there_are_none() -> None:
    assert "ValidatingAdmissionPolicy" in text_of(MINIMAL)
    off = {**MINIMAL, "admissionPolicies": {"enabled": False}}
    assert "ValidatingAdmissionPolicy" not in text_of(off)
