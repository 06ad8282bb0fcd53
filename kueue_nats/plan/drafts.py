"""Objects of the Kueue API made from a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kueue_nats.plan import objects as kueue_objects
from kueue_nats.plan.planner import Plan, PlannedQueue

Json = Mapping[str, Any]


class PlannedObjects(NamedTuple):
    """Objects that should exist, by name."""

    flavors: Mapping[str, Json]
    queues: Mapping[str, Json]


def objects(plan: Plan, owner: Json, version: str, usable: frozenset[str]) -> PlannedObjects:
    """Return the objects of a plan; queues name only flavors that are usable."""
    reference = dict(owner)
    flavors = {f.name: kueue_objects.resource_flavor(f, reference, version) for f in plan.flavors}
    queues = {
        queue.name: kueue_objects.cluster_queue(_only(queue, usable), reference, version)
        for queue in plan.queues
    }
    return PlannedObjects(flavors, queues)


def flavor_names(plan: Plan) -> frozenset[str]:
    """Return the names of all flavors in the queues of a plan."""
    return frozenset(name for queue in plan.queues for name in queue.flavors)


def _only(queue: PlannedQueue, usable: frozenset[str]) -> PlannedQueue:
    kept = {name: quotas for name, quotas in queue.flavors.items() if name in usable}
    return queue._replace(flavors=kept)
