"""Leader election: of several operators one holds a Lease, and renews it in time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, NamedTuple, Optional

Json = dict[str, Any]


class ObservedLease(NamedTuple):
    """Lease as it was last seen, and when by our own clock: no other one is compared."""

    holder: str
    version: str
    at_s: float


def observe(
    lease: Optional[Mapping[str, Any]], before: Optional[ObservedLease], now_s: float
) -> Optional[ObservedLease]:
    """Return the lease as it is now; its time begins anew whenever it has changed."""
    if lease is None:
        return None
    version = lease["metadata"]["resourceVersion"]
    if before is not None and before.version == version:
        return before
    return ObservedLease((lease.get("spec") or {}).get("holderIdentity") or "", version, now_s)


def can_acquire(seen: Optional[ObservedLease], identity: str, now_s: float, lease_s: float) -> bool:
    """Return whether the lease is ours, nobody's, or has expired."""
    return seen is None or seen.holder in ("", identity) or now_s - seen.at_s >= lease_s


def lease_body(
    lease: Optional[Mapping[str, Any]], name: str, identity: str, lease_s: int, now: float
) -> Json:
    """Return the lease, acquired or renewed; without an identity: released."""
    moment = datetime.fromtimestamp(now, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = dict((lease or {}).get("spec") or {})
    if spec.get("holderIdentity") != identity:
        spec["acquireTime"] = moment
        spec["leaseTransitions"] = spec.get("leaseTransitions", 0) + (lease is not None)
    spec.update(holderIdentity=identity, leaseDurationSeconds=lease_s, renewTime=moment)
    metadata = dict((lease or {}).get("metadata") or {"name": name})
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": metadata,
        "spec": spec,
    }
