"""The capacity of a site's cluster: by the pool's settings, a ResourceQuota, or its nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from submitter.backends.kubernetes.client import Api
from submitter.backends.kubernetes.options import NODES, QUOTA, Options
from submitter.common.errors import BackendUnavailable
from templates.common.errors import PodRejected
from templates.common.quantity import parse

REQUESTS = "requests."
PODS = ("pods", "count/pods")


def read_capacity(api: Api, options: Options, resources: Mapping[str, str]) -> dict[str, str]:
    """Return the resources on offer; raise ``BackendUnavailable`` or ``ApiRefused``."""
    found: dict[str, str] = {}
    if options.capacity == QUOTA:
        quota = api.get("resourcequotas", options.quota)
        if quota is None:
            raise BackendUnavailable(f"there is no ResourceQuota {options.quota}")
        found = parse_quota((quota.get("spec") or {}).get("hard") or {})
    elif options.capacity == NODES:
        selector = ",".join(f"{key}={value}" for key, value in options.node_selector.items())
        found = sum_nodes(api.nodes(selector))
    return {**found, **resources}


def parse_quota(hard: Mapping[str, str]) -> dict[str, str]:
    """Return what a quota allows pods to request; skip limits and objects of other kinds."""
    found: dict[str, str] = {}
    for name, amount in hard.items():
        if name in PODS:
            found["pods"] = amount
        elif name.startswith(REQUESTS) and "storage" not in name:
            found[name[len(REQUESTS) :]] = amount
        elif name in ("cpu", "memory"):
            found.setdefault(name, amount)
    return found


def sum_nodes(nodes: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the allocatable resources of the nodes that are ready and accept pods."""
    sums: dict[str, Any] = {}
    for node in nodes:
        if (node.get("spec") or {}).get("unschedulable") or not _is_ready(node):
            continue
        for name, amount in ((node.get("status") or {}).get("allocatable") or {}).items():
            if "storage" not in name and not name.startswith("hugepages-"):
                try:
                    sums[name] = sums.get(name, 0) + parse(amount, name)
                except PodRejected:
                    continue
    return {name: _format_amount(name, amount) for name, amount in sums.items()}


def _is_ready(node: Mapping[str, Any]) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _format_amount(name: str, amount: Any) -> str:
    return f"{int(amount * 1000)}m" if name == "cpu" else str(int(amount))
