"""What Kueue says is in use, and what several MasterQueues count together."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from kueue_nats.plan.planner import UNLIMITED
from kueue_nats.plan.shared_pools import PoolShare, overcommit_warnings
from kueue_nats.plan.usage import inactive_queues, plan_usage
from kueue_nats.pools.tracker import restored_record
from templates.protocol.publications import Resources
from tests.unit.kueue_nats.masters import SOURCE, heard, lends, master, offer, planned

PLAN = planned(master(heard(canLendTo=[lends("b"), lends("c")])), offer("p", {"cpu": 4}))


def queue(key: str = "flavorsUsage", **cpu: str) -> dict[str, Any]:
    """A ClusterQueue with so much of a flavor's CPUs in use."""
    flavors = [
        {"name": name.replace("_", "."), "resources": [{"name": "cpu", "total": total}]}
        for name, total in cpu.items()
    ]
    return {"status": {key: flavors}}


def test_use_is_that_of_all_queues_and_lent_what_others_have() -> None:
    queues = {"mq": queue(mq_g_p="1"), "b": queue(mq_g_p="500m"), "c": queue(mq_g_p="0")}
    usage = plan_usage(PLAN, queues)["mq.g.p"]
    assert usage.total == {"cpu": Fraction(3, 2)}
    assert usage.lent == {"b": {"cpu": Fraction(1, 2)}}


def test_what_is_not_said_or_not_ours_is_not_counted() -> None:
    queues = {"mq": queue(other="5"), "b": {"status": {}}, "stranger": queue(mq_g_p="9")}
    assert plan_usage(PLAN, queues)["mq.g.p"].total == {}
    assert plan_usage(PLAN, {})["mq.g.p"].total == {}


def test_what_was_reserved_is_used_where_nothing_else_is_said() -> None:
    usage = plan_usage(PLAN, {"mq": queue("flavorsReservation", mq_g_p="2")})
    assert usage["mq.g.p"].total == {"cpu": 2}


def active(status: str, reason: str = "FlavorNotFound") -> dict[str, Any]:
    words = {"type": "Active", "status": status, "reason": reason, "message": "in Kueue's words"}
    return {"status": {"conditions": [{"type": "Other", "status": "False"}, words]}}


@pytest.mark.parametrize(
    ("condition", "template", "words"),
    [
        (active("True"), {}, []),
        ({}, {}, []),
        (active("False"), {}, ["ClusterQueue mq: in Kueue's words"]),
        (active("False", "Stopped"), {}, ["ClusterQueue mq: in Kueue's words"]),
        (active("False", "Stopped"), {"stopPolicy": "Hold"}, []),
        (active("False"), {"stopPolicy": "Hold"}, ["ClusterQueue mq: in Kueue's words"]),
    ],
)
def test_a_queue_that_admits_nothing_is_named_unless_its_admin_wants_it_so(
    condition: dict[str, Any], template: dict[str, Any], words: list[str]
) -> None:
    made = planned(master(heard(), template=template), offer("p"))
    assert inactive_queues(made, {"mq": condition}) == words


# --- shares ---------------------------------------------------------------------------------------

KEY = (SOURCE, "p")


def warned(published: dict[str, str], *shares: dict[str, int]) -> str:
    told = [
        (KEY, PoolShare(f"mq{number}", {name: Fraction(amount) for name, amount in share.items()}))
        for number, share in enumerate(shares)
    ]
    return overcommit_warnings(told, {KEY: restored_record(Resources("p", published), 0, 0)}).get(
        KEY, ""
    )


def test_shares_within_what_is_published_are_no_reason_to_warn() -> None:
    assert warned({"cpu": "4"}, {"cpu": 4}) == ""
    assert warned({"cpu": "4"}, {"cpu": 2}, {"cpu": 2}) == ""
    assert warned({"cpu": "4"}, {"cpu": 9}) == ""  # one alone cannot count too much


def test_shares_above_it_are_named() -> None:
    assert warned({"cpu": "4", "memory": "1Gi"}, {"cpu": 3}, {"cpu": 2, "memory": 1}) == (
        "MasterQueues mq0 and mq1 together count more than it offers of cpu"
    )


def test_what_is_not_limited_cannot_be_shared_too_often() -> None:
    much = int(UNLIMITED["pods"])
    assert warned({"pods": str(much)}, {"pods": much}, {"pods": much}) == ""


def test_a_pool_that_nobody_has_heard_is_no_reason_to_warn() -> None:
    assert overcommit_warnings([(KEY, PoolShare("a", {})), (KEY, PoolShare("b", {}))], {}) == {}
