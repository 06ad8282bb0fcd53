"""Kueue's objects, in the version of its API that the cluster serves."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from kueue_nats.plan.planner import PlannedFlavor, PlannedQueue, Quota
from kueue_nats.spec.masterqueue import GROUP, KIND, VERSION
from templates import __version__

KUEUE = "kueue.x-k8s.io"
OLD, NEW = "v1beta1", "v1beta2"
FLAVORS, QUEUES, WORKLOADS = "resourceflavors", "clusterqueues", "workloads"

MANAGED_BY = {"app.kubernetes.io/managed-by": "kueue-nats"}
POOL_ANNOTATION = "vk.io/pool"
APPLIED_ANNOTATION = (
    "vk.io/applied"  # the digest of what we have asked for; what we ask no more is noticed by it
)

_OLD_VALUES = {
    "whenCanBorrow": {"MayStopSearch": "Borrow"},
    "whenCanPreempt": {"MayStopSearch": "Preempt"},
}
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi")
_BYTES = ("memory", "storage", "hugepages")

Json = dict[str, Any]


def resource_flavor(flavor: PlannedFlavor, owner: Json, version: str) -> Json:
    """Return a ResourceFlavor; both versions of the API write it alike."""
    metadata = _metadata(flavor.name, owner, {**flavor.labels, **MANAGED_BY})
    metadata["annotations"][POOL_ANNOTATION] = flavor.pool
    return _digested(version, "ResourceFlavor", metadata, dict(flavor.spec))


def cluster_queue(queue: PlannedQueue, owner: Json, version: str) -> Json:
    """Return a ClusterQueue; without flavors it has no resource group: an empty one is refused."""
    spec = dict(queue.template.fields)
    spec["cohortName" if version != OLD else "cohort"] = queue.template.cohort
    if version == OLD and "flavorFungibility" in spec:
        spec["flavorFungibility"] = {
            key: _OLD_VALUES.get(key, {}).get(word, word)
            for key, word in spec["flavorFungibility"].items()
        }
    spec["resourceGroups"] = [_group(queue)] if queue.flavors else []
    return _digested(version, "ClusterQueue", _metadata(queue.name, owner, MANAGED_BY), spec)


def owner_reference(master: Mapping[str, Any]) -> Json:
    """Return the owner reference by which objects are deleted with their MasterQueue."""
    metadata = master["metadata"]
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": False,
    }


def format_quantity(amount: Fraction, resource: str) -> str:
    """Return a quantity as people write it; parts of a thousandth are cut off."""
    if amount.denominator != 1:
        return f"{int(amount * 1000)}m"
    whole, power = int(amount), 0
    if resource.startswith(_BYTES) or resource.endswith(_BYTES):
        while whole and whole % 1024 == 0 and power + 1 < len(_BINARY):
            whole, power = whole // 1024, power + 1
    return f"{whole}{_BINARY[power]}"


def _group(queue: PlannedQueue) -> Json:
    return {
        "coveredResources": list(queue.resources),
        "flavors": [
            {"name": name, "resources": [_quota(*pair) for pair in zip(queue.resources, quotas)]}
            for name, quotas in queue.flavors.items()
        ],
    }


def _quota(resource: str, quota: Quota) -> Json:
    entry = {"name": resource, "nominalQuota": format_quantity(quota.nominal, resource)}
    if quota.borrowing is not None:
        entry["borrowingLimit"] = format_quantity(quota.borrowing, resource)
    return entry


def _metadata(name: str, owner: Json, labels: Mapping[str, str]) -> Json:
    return {"name": name, "labels": dict(labels), "annotations": {}, "ownerReferences": [owner]}


def _digested(version: str, kind: str, metadata: Json, spec: Json) -> Json:
    made = {"apiVersion": f"{KUEUE}/{version}", "kind": kind, "metadata": metadata, "spec": spec}
    text = json.dumps([__version__, made], sort_keys=True)
    metadata["annotations"][APPLIED_ANNOTATION] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return made
