"""The objects that a plan comes to, with the flavors that queues may name already."""

from __future__ import annotations

from kueue_nats.plan import planner
from kueue_nats.plan.actions import named_flavors
from kueue_nats.plan.drafts import flavor_names, objects
from kueue_nats.plan.objects import NEW
from tests.unit.kueue_nats import masters
from tests.unit.kueue_nats.masters import offer

OWNER = {"uid": masters.UID, "name": "masterqueue"}
OFFERS = {"interlink": [offer("a", {"cpu": 64}), offer("b", {"cpu": 2})]}
WANTED = masters.manifest()._replace(uid=masters.UID)


def test_queues_name_only_flavors_that_are_usable_and_all_flavors_are_made() -> None:
    plan = planner.plan(WANTED, OFFERS, ["local-cpu"])
    every = flavor_names(plan)
    assert len(every) == 3
    for usable in (every, every - {min(every)}, frozenset[str]()):
        made = objects(plan, OWNER, NEW, usable | {"another's"})
        assert set(made.flavors) == every - {"local-cpu"}
        assert named_flavors(made.queues.values()) == usable
        assert set(made.queues) == {queue.name for queue in plan.queues}
