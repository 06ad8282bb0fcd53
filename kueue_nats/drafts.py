"""The objects that a plan comes to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kueue_nats import kueue_objects
from kueue_nats.planning import Plan, Queue

Json = Mapping[str, Any]


class Objects(NamedTuple):
    """What should be there, by name."""

    flavors: Mapping[str, Json]
    queues: Mapping[str, Json]


def objects(plan: Plan, owner: Json, version: str, usable: frozenset[str]) -> Objects:
    """The objects of a plan; queues name only flavors that are usable."""
    reference = dict(owner)
    flavors = {f.name: kueue_objects.resource_flavor(f, reference, version) for f in plan.flavors}
    queues = {
        queue.name: kueue_objects.cluster_queue(_only(queue, usable), reference, version)
        for queue in plan.queues
    }
    return Objects(flavors, queues)


def named(plan: Plan) -> frozenset[str]:
    """Every flavor that a queue of the plan names."""
    return frozenset(name for queue in plan.queues for name in queue.flavors)


def _only(queue: Queue, usable: frozenset[str]) -> Queue:
    kept = {name: quotas for name, quotas in queue.flavors.items() if name in usable}
    return queue._replace(flavors=kept)
