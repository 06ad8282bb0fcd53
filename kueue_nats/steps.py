"""What to write, in an order that is safe at each point: every queue stays active.

A queue names a flavor only if it was there when the cluster was looked at, so that Kueue knows it;
a flavor is deleted only if no queue named it then. So a pool comes, and goes, in two rounds. One
that is being deleted is taken out of the queues: it would vanish under them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kueue_nats import kueue_objects
from kueue_nats.comparing import says
from kueue_nats.kueue_objects import FLAVORS, QUEUES
from kueue_nats.planning import Plan, Queue

APPLY, DELETE = "apply", "delete"

Json = Mapping[str, Any]
Named = Mapping[str, Json]  # objects by their names


class Step(NamedTuple):
    """One write."""

    verb: str
    plural: str
    name: str
    body: Json  # of a deletion: the object as it was seen


class Steps(NamedTuple):
    """What to do for one MasterQueue now, and what stands in the way."""

    todo: tuple[Step, ...]
    foreign: tuple[str, ...]  # objects with a name that we need, which are not ours
    more: bool  # another round will be needed
    usable: frozenset[str]  # flavors that queues may name


def to_reach(plan: Plan, owner: Json, version: str, flavors: Named, queues: Named) -> Steps:
    """The steps from what is there to what is planned, by one look at the cluster."""
    uid, reference = owner["uid"], dict(owner)
    wanted = {f.name: kueue_objects.resource_flavor(f, reference, version) for f in plan.flavors}
    planned = {queue.name for queue in plan.queues}
    foreign = [f"ResourceFlavor {name}" for name in wanted if _is_foreign(flavors.get(name), uid)]
    foreign += [
        f"ClusterQueue {name}" for name in sorted(planned) if _is_foreign(queues.get(name), uid)
    ]
    todo = [
        Step(APPLY, FLAVORS, name, body)
        for name, body in wanted.items()
        if not _is_foreign(flavors.get(name), uid)
        and not _is_going(flavors.get(name, {}))
        and not says(flavors.get(name), body)
    ]
    usable = frozenset(
        name
        for name, there in flavors.items()
        if not _is_going(there) and not (name in wanted and _is_foreign(there, uid))
    )
    made = [
        kueue_objects.cluster_queue(_only(queue, usable), reference, version)
        for queue in plan.queues
        if not _is_foreign(queues.get(queue.name), uid)
    ]
    todo += [
        Step(APPLY, QUEUES, body["metadata"]["name"], body)
        for body in made
        if not _is_going(queues.get(body["metadata"]["name"], {}))
        and not says(queues.get(body["metadata"]["name"]), body)
    ]
    todo += _surplus(QUEUES, queues, planned, uid)
    named = named_flavors(queues.values())
    idle = {name: there for name, there in flavors.items() if name not in named}
    todo += _surplus(FLAVORS, idle, wanted.keys(), uid)
    return Steps(tuple(todo), tuple(foreign), bool(todo), usable)


def named_flavors(queues: Iterable[Json]) -> set[str]:
    """Every flavor that some queue names."""
    return {
        flavor["name"]
        for queue in queues
        for group in queue.get("spec", {}).get("resourceGroups") or ()
        for flavor in group.get("flavors") or ()
    }


def is_ours(item: Json, uid: str) -> bool:
    """Whether an object belongs to the MasterQueue with this uid."""
    return any(ref.get("uid") == uid for ref in item["metadata"].get("ownerReferences") or ())


def _only(queue: Queue, usable: frozenset[str]) -> Queue:
    kept = {name: quotas for name, quotas in queue.flavors.items() if name in usable}
    return queue._replace(flavors=kept)


def _surplus(plural: str, there: Named, wanted: Iterable[str], uid: str) -> list[Step]:
    return [
        Step(DELETE, plural, name, item)
        for name, item in sorted(there.items())
        if name not in wanted and is_ours(item, uid) and not _is_going(item)
    ]


def _is_foreign(item: Json | None, uid: str) -> bool:
    return item is not None and not is_ours(item, uid)


def _is_going(item: Json) -> bool:
    return bool(item.get("metadata", {}).get("deletionTimestamp"))
