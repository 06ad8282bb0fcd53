"""Actions on the cluster, in an order that is safe at each point: every queue stays active.

A queue names a flavor one round after it was first seen, because Kueue needs a moment to hear of
it; a flavor is deleted only if no queue named it when the cluster was looked at. One that is being
deleted is taken out of the queues: it would vanish under them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kueue_nats.plan.diff import is_superset
from kueue_nats.plan.drafts import PlannedObjects, flavor_names
from kueue_nats.plan.objects import FLAVORS, QUEUES
from kueue_nats.plan.planner import Plan

APPLY, DELETE = "apply", "delete"

Json = Mapping[str, Any]
Named = Mapping[str, Json]  # objects by their names


class ClusterAction(NamedTuple):
    """Write of one object."""

    verb: str
    plural: str
    name: str
    body: Json  # of a deletion: the object as it was seen


class Actions(NamedTuple):
    """Actions for one MasterQueue, and the objects that stand in the way."""

    todo: tuple[ClusterAction, ...]
    foreign: tuple[str, ...]  # objects with a name that we need, which are not ours


def diff_actions(wanted: PlannedObjects, uid: str, flavors: Named, queues: Named) -> Actions:
    """Return the actions from the objects that exist to those that one MasterQueue wants."""
    foreign = [f"ResourceFlavor {name}" for name in wanted.flavors if _taken(flavors, name, uid)]
    foreign += [
        f"ClusterQueue {name}" for name in sorted(wanted.queues) if _taken(queues, name, uid)
    ]
    todo = [
        *_changed(FLAVORS, wanted.flavors, flavors, uid),
        *_changed(QUEUES, wanted.queues, queues, uid),
        *_surplus(QUEUES, queues, wanted.queues, uid),
    ]
    in_use = named_flavors(queues.values())
    idle = {name: there for name, there in flavors.items() if name not in in_use}
    todo += _surplus(FLAVORS, idle, wanted.flavors, uid)
    return Actions(tuple(todo), tuple(foreign))


def usable_flavors(plan: Plan, uid: str, flavors: Named) -> frozenset[str]:
    """Return the flavors of a plan that exist and stay."""
    planned = {flavor.name for flavor in plan.flavors}
    return frozenset(
        name
        for name in flavor_names(plan) & flavors.keys()
        if not is_deleting(flavors[name])
        and not (name in planned and not is_owned(flavors[name], uid))
    )


def known_flavors(
    usable: frozenset[str], seen: frozenset[str], uid: str, flavors: Named, queues: Named
) -> frozenset[str]:
    """Return the usable flavors that queues may name now; ``seen`` are uids of the look before.

    What queues of this MasterQueue name already stays, also when the operator has just started.
    """
    in_use = named_flavors(queue for queue in queues.values() if is_owned(queue, uid))
    return frozenset(
        name for name in usable if name in in_use or flavors[name]["metadata"]["uid"] in seen
    )


def named_flavors(queues: Iterable[Json]) -> set[str]:
    """Return every flavor that some queue names."""
    return {
        flavor["name"]
        for queue in queues
        for group in queue.get("spec", {}).get("resourceGroups") or ()
        for flavor in group.get("flavors") or ()
    }


def is_owned(item: Json, uid: str) -> bool:
    """Return whether an object belongs to the MasterQueue with this uid."""
    return any(ref.get("uid") == uid for ref in item["metadata"].get("ownerReferences") or ())


def is_deleting(item: Json) -> bool:
    """Return whether an object is being deleted."""
    return bool(item.get("metadata", {}).get("deletionTimestamp"))


def _changed(plural: str, wanted: Named, there: Named, uid: str) -> list[ClusterAction]:
    return [
        ClusterAction(APPLY, plural, name, body)
        for name, body in wanted.items()
        if not _taken(there, name, uid)
        and not is_deleting(there.get(name, {}))
        and not is_superset(there.get(name), body)
    ]


def _surplus(plural: str, there: Named, wanted: Iterable[str], uid: str) -> list[ClusterAction]:
    return [
        ClusterAction(DELETE, plural, name, item)
        for name, item in sorted(there.items())
        if name not in wanted and is_owned(item, uid) and not is_deleting(item)
    ]


def _taken(there: Named, name: str, uid: str) -> bool:
    """Return whether somebody else's object has that name."""
    return name in there and not is_owned(there[name], uid)
