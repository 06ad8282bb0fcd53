"""Pools as the cluster knows them, for a restarted operator that has not heard them yet.

A pool whose flavor is in use keeps its quota until its timeout has passed since the restart; one
that was lost before is still shown as lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kueue_nats.plan.actions import named_flavors
from kueue_nats.plan.objects import MANAGED_BY, POOL_ANNOTATION
from kueue_nats.plan.planner import DRAINING, LOST
from kueue_nats.pools.tracker import FORGET_S, PoolRecord, restored_record
from kueue_nats.spec.masterqueue import MasterQueue, NatsFlavor, NatsSource
from kueue_nats.status.status import parse_timestamp
from templates.common.constants import VIRTUAL_NODE_TAINT
from templates.common.names import flavor_name
from templates.common.quantity import is_quantity
from templates.protocol.publications import Resources

Json = Mapping[str, Any]
Records = dict[tuple[NatsSource, str], PoolRecord]


class ExistingObjects(NamedTuple):
    """Objects of a MasterQueue in the cluster."""

    flavors: Mapping[str, Json]
    queue: Json  # its own one


class Clock(NamedTuple):
    """Readings of two clocks at one moment."""

    now_s: float  # the one that timeouts are measured by
    now: float  # seconds since 1970

    def to_monotonic(self, at: float) -> float:
        """Convert a time of day to the clock for timeouts."""
        return self.now_s - (self.now - at)


def restore_records(
    wanted: MasterQueue, status: Json, there: ExistingObjects, clock: Clock, *, strict: bool = False
) -> Records:
    """Return all pools of a MasterQueue; with ``strict`` timeouts ran on while nobody listened."""
    told = {(e.get("flavor"), e.get("name")): e for e in status.get("pools") or ()}
    found = _lost(wanted, told, clock)
    for group, nats, flavor in _in_use(wanted, there):
        pool = flavor["metadata"]["annotations"][POOL_ANNOTATION]
        entry = told.get((group, pool), {})
        at, quotas = parse_timestamp(entry.get("lastHeard")), _quotas(there.queue, flavor)
        published = _published(entry) or quotas
        resources = Resources(
            pool=pool,
            quotas=published,
            labels=_labels(flavor),
            taints=_taints(flavor),
            draining=entry.get("state") == DRAINING and pool not in wanted.drain,
        )
        heard_s = clock.to_monotonic(at) if strict else clock.now_s
        # The queue has a quota for more than the pool has spoken of, and perhaps a lower one.
        counted = {name: quotas.get(name, text) for name, text in published.items()}
        found[nats.source, pool] = restored_record(resources, heard_s, at or clock.now, counted)
    return found


def _lost(wanted: MasterQueue, told: Mapping[Any, Json], clock: Clock) -> Records:
    found: Records = {}
    for group in wanted.groups:
        for (name, pool), entry in told.items():
            at = parse_timestamp(entry.get("lastHeard"))
            if group.nats is None or name != group.name or entry.get("state") != LOST:
                continue
            if group.nats.matches(pool) and clock.now - at < FORGET_S:
                resources = Resources(pool, _published(entry))
                found[group.nats.source, pool] = restored_record(
                    resources, clock.to_monotonic(at), at
                )
    return found


def _in_use(wanted: MasterQueue, there: ExistingObjects) -> Iterator[tuple[str, NatsFlavor, Json]]:
    """Yield the flavors that the MasterQueue's own queue names, with the group of each."""
    named = named_flavors([there.queue])
    for name, flavor in there.flavors.items():
        pool = (flavor["metadata"].get("annotations") or {}).get(POOL_ANNOTATION, "")
        for group in wanted.groups:
            if group.nats is None or name not in named or not group.nats.matches(pool):
                continue
            if flavor_name(wanted.name, group.name, pool) == name:
                yield group.name, group.nats, flavor


def _published(entry: Json) -> dict[str, str]:
    """Return the published quotas of a pool in a status, which anybody may have written."""
    return {name: t for name, t in (entry.get("published") or {}).items() if is_quantity(t)}


def _quotas(queue: Json, flavor: Json) -> dict[str, str]:
    return {
        resource["name"]: str(resource["nominalQuota"])
        for group in queue["spec"].get("resourceGroups") or ()
        for entry in group["flavors"]
        if entry["name"] == flavor["metadata"]["name"]
        for resource in entry["resources"]
    }


def _labels(flavor: Json) -> tuple[str, ...]:
    labels = flavor["metadata"].get("labels") or {}
    return tuple(f"{key}={value}" for key, value in labels.items() if key not in MANAGED_BY)


def _taints(flavor: Json) -> tuple[str, ...]:
    return tuple(
        f"{taint['key']}={taint.get('value', '')}:{taint['effect']}"
        for taint in flavor["spec"].get("nodeTaints") or ()
        if taint["key"] != VIRTUAL_NODE_TAINT
    )
