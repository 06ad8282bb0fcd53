"""What is worked out once: it has to be what would be worked out now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kueue_nats import planning
from kueue_nats.drafts import Drafts, named, objects
from kueue_nats.kueue_objects import NEW, OLD
from kueue_nats.planning import Plan
from tests.kueue_nats import masters
from tests.kueue_nats.masters import offer

OWNER = {"uid": masters.UID, "name": "masterqueue"}
OFFERS = {"interlink": [offer("a", {"cpu": 64}), offer("b", {"cpu": 2})]}
LOCAL = ["local-cpu"]
WANTED = masters.manifest()._replace(uid=masters.UID)


def plan_of(drafts: Drafts, offers: Mapping[str, Any] = OFFERS, local: Any = LOCAL) -> Plan:
    return drafts.plan(WANTED, offers, local)


@pytest.mark.parametrize(
    ("offers", "local"),
    [
        ({"interlink": [offer("a", {"cpu": 64}), offer("b", {"cpu": 3})]}, LOCAL),
        ({"interlink": [offer("a", {"cpu": 64})]}, LOCAL),
        (OFFERS, []),
    ],
)
def test_a_plan_is_made_again_when_anything_has_changed(
    offers: Mapping[str, Any], local: list[str]
) -> None:
    drafts = Drafts()
    first = plan_of(drafts)
    assert plan_of(drafts) is first
    second = plan_of(drafts, offers, local)
    assert second == planning.plan(WANTED, offers, local)
    assert second != first
    assert plan_of(drafts) == first


def test_objects_are_made_again_when_anything_has_changed() -> None:
    drafts = Drafts()
    plan = plan_of(drafts)
    every = named(plan)
    first = drafts.objects(plan, OWNER, NEW, every)
    assert drafts.objects(plan, dict(OWNER), NEW, every | {"another's"}) is first
    one, other = sorted(every)[:2]
    for asked in (
        (plan, OWNER, NEW, every - {one}),
        (plan, OWNER, NEW, every - {other}),
        (plan, OWNER, OLD, every),
        (plan, {**OWNER, "name": "renamed"}, NEW, every),
        (plan_of(drafts, {}), OWNER, NEW, every),
    ):
        made = drafts.objects(*asked)
        assert made == objects(*asked)
        assert made != first


def test_what_is_gone_is_forgotten() -> None:
    drafts = Drafts()
    plan = plan_of(drafts)
    made = drafts.objects(plan, OWNER, NEW, named(plan))
    drafts.keep([masters.UID])
    assert drafts.objects(plan_of(drafts), OWNER, NEW, named(plan)) is made
    drafts.keep([])
    assert plan_of(drafts) is not plan
