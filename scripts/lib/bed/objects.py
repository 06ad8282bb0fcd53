"""The objects that a cluster needs before our operator and interLink's virtual kubelet work in it.

    python -m scripts.lib.bed.objects    prints the objects as JSON, for "kubectl apply -f -"

The operator and the plugin get the rules that the chart gives them, the virtual kubelet those that
it cannot do without.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).resolve().parents[3] / "chart"
CRD = CHART / "crds" / "masterqueue.yaml"
RULES = CHART / "files" / "kueue-nats-rules.yaml"
RBAC = "rbac.authorization.k8s.io"
OPERATOR = "kueue-nats"  # its namespace, its ServiceAccount and what binds them
VIRTUAL_KUBELET = "interlink"
PLUGIN_RULES = CHART / "files" / "plugin-rules.yaml"
PLUGIN = "plugin"

Json = dict[str, Any]

VIRTUAL_KUBELET_RULES: list[Json] = [
    {"apiGroups": [""], "resources": resources, "verbs": verbs}
    for resources, verbs in (
        (["pods"], ["get", "list", "watch", "update", "patch", "delete"]),
        (["pods/status"], ["get", "update", "patch"]),
        (["nodes"], ["get", "list", "watch", "create", "update", "patch"]),
        (["nodes/status"], ["get", "update", "patch"]),
        # Without this one it says so once, and then never asks how a pod is doing.
        (["namespaces"], ["list"]),
        (["configmaps", "secrets", "services"], ["get", "list", "watch"]),
        (["serviceaccounts/token"], ["create"]),
        (["events"], ["create", "patch"]),
    )
] + [
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["get", "create", "update", "patch"],
    }
]


def operator() -> list[Json]:
    """The operator's kind, its ServiceAccount, and the rights of the chart."""
    rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    return [
        yaml.safe_load(CRD.read_text(encoding="utf-8")),
        *_account(OPERATOR),
        *_bound("ClusterRole", {"name": OPERATOR}, rules["cluster"], OPERATOR),
        *_bound("Role", {"name": OPERATOR, "namespace": OPERATOR}, rules["namespace"], OPERATOR),
        *_bound("Role", {"name": OPERATOR, "namespace": "default"}, rules["default"], OPERATOR),
    ]


def virtual_kubelet() -> list[Json]:
    """The virtual kubelet's ServiceAccount and rights."""
    name = VIRTUAL_KUBELET
    return [*_account(name), *_bound("ClusterRole", {"name": name}, VIRTUAL_KUBELET_RULES, name)]


def plugin() -> list[Json]:
    """The plugin's ServiceAccount, by which it finds jobs whose pods are gone."""
    rules = yaml.safe_load(PLUGIN_RULES.read_text(encoding="utf-8"))
    return [*_account(PLUGIN), *_bound("ClusterRole", {"name": PLUGIN}, rules["cluster"], PLUGIN)]


def _account(name: str) -> list[Json]:
    """A ServiceAccount in a namespace of the same name."""
    metadata = {"name": name, "namespace": name}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
    ]


def _bound(kind: str, metadata: Json, rules: list[Json], account: str) -> list[Json]:
    """A role, and its binding to such a ServiceAccount."""
    subject = {"kind": "ServiceAccount", "name": account, "namespace": account}
    role = {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": metadata, "rules": rules}
    ref = {"apiGroup": RBAC, "kind": kind, "name": metadata["name"]}
    binding = {"apiVersion": f"{RBAC}/v1", "kind": f"{kind}Binding", "metadata": metadata}
    return [role, {**binding, "roleRef": ref, "subjects": [subject]}]


if __name__ == "__main__":
    items = [*operator(), *plugin(), *virtual_kubelet()]
    sys.stdout.write(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
