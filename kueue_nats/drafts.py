"""What a plan becomes as objects; what follows from the same is worked out only once.

In a cluster with some hundred pools hardly any of them has changed from one round to the next, and
planning would be most of a round's work.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from kueue_nats import kueue_objects, planning
from kueue_nats.model import MasterQueue
from kueue_nats.planning import Offers, Plan, Queue

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


class Drafts:
    """The last plan of each MasterQueue, its objects, and what they followed from."""

    def __init__(self) -> None:
        self._plans: dict[str, tuple[object, Plan]] = {}
        self._objects: dict[str, tuple[Plan, object, Objects]] = {}

    def plan(self, wanted: MasterQueue, offers: Offers, local_flavors: Iterable[str]) -> Plan:
        """As ``planning.plan``."""
        local = sorted(local_flavors)
        asked = (wanted, offers, local)
        last = self._plans.get(wanted.uid)
        if last is None or last[0] != asked:
            last = self._plans[wanted.uid] = asked, planning.plan(wanted, offers, local)
        return last[1]

    def objects(self, plan: Plan, owner: Json, version: str, usable: frozenset[str]) -> Objects:
        """As the function of this name."""
        asked = (dict(owner), version, named(plan) & usable)
        last = self._objects.get(owner["uid"])
        if last is None or last[0] is not plan or last[1] != asked:
            made = objects(plan, owner, version, usable)
            last = self._objects[owner["uid"]] = plan, asked, made
        return last[2]

    def keep(self, uids: Collection[str]) -> None:
        """Forget what belongs to any other MasterQueue."""
        self._plans = {uid: last for uid, last in self._plans.items() if uid in uids}
        self._objects = {uid: last for uid, last in self._objects.items() if uid in uids}


def named(plan: Plan) -> frozenset[str]:
    """Every flavor that a queue of the plan names."""
    return frozenset(name for queue in plan.queues for name in queue.flavors)


def _only(queue: Queue, usable: frozenset[str]) -> Queue:
    kept = {name: quotas for name, quotas in queue.flavors.items() if name in usable}
    return queue._replace(flavors=kept)
