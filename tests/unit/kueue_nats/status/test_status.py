"""The status of a MasterQueue, and the Events of its changes."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from kueue_nats.plan.planner import Plan
from kueue_nats.plan.usage import Usage
from kueue_nats.status.events import Event, event_body, status_events
from kueue_nats.status.status import (
    HEALTHY,
    MAX_MESSAGE,
    READY,
    REFRESH_S,
    Condition,
    PoolReport,
    StatusInput,
    build_status,
    failed_status,
    health_condition,
    needs_write,
    parse_timestamp,
    timestamp,
)
from tests.unit.kueue_nats.masters import heard, lends, local, master, offer, planned, raw

NOW = 1_700_000_000.0
READY_TRUE = Condition(READY, "True", "Reconciled", "all is well")


def told(made: Plan, before: Any = None, now: float = NOW, **more: Any) -> dict[str, Any]:
    seen = StatusInput(
        generation=3,
        conditions=more.get("conditions", [READY_TRUE]),
        reports=more.get(
            "reports", {("g", pool.name): PoolReport(NOW, {"cpu": "8"}) for pool in made.pools}
        ),
        usage=more.get("usage", {}),
        warnings=more.get("warnings", {}),
    )
    usage = {p.flavor: seen.usage.get(p.flavor, Usage({}, {})) for p in made.pools}
    return build_status(made, seen._replace(usage=usage), before or {}, now)


MADE = planned(
    master(heard(canLendTo=[lends("b")]), local(nominalQuota={"pods": 5})),
    offer("a", {"cpu": 4, "memory": 2**33, "nvidia.com/gpu": 0}),
    offer("gone", lost="not heard of for 60 s (poolTimeout)"),
)


def test_what_is_said_of_a_pool() -> None:
    used = Usage({"cpu": Fraction(3, 2)}, {"b": {"cpu": Fraction(1)}})
    one, gone, mine = told(MADE, usage={"mq.g.a": used}, warnings={("g", "a"): "a warning"})[
        "pools"
    ]
    assert one == {
        "name": "a",
        "flavor": "g",
        "state": "Active",
        "resourceFlavor": "mq.g.a",
        "lastHeard": "2023-11-14T22:13:20Z",
        "published": {"cpu": "8"},
        "effective": {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "0"},
        "used": {"cpu": "1500m"},
        "lentTo": [{"queue": "b", "used": {"cpu": "1"}}],
        "message": "a warning",
    }
    assert (gone["state"], gone["message"]) == ("Lost", "not heard of for 60 s (poolTimeout)")
    assert "resourceFlavor" not in gone
    assert (mine["name"], mine["effective"]) == ("local", {"pods": "5"})


def test_the_counts_are_of_pools_that_are_heard() -> None:
    found = told(MADE, reports={("g", "a"): PoolReport(NOW, {})})
    assert (found["poolsAlive"], found["poolsKnown"], found["poolsSummary"]) == (1, 2, "1/2")


def test_the_summary_is_of_what_has_a_limit() -> None:
    used = {"mq.g.a": Usage({"cpu": Fraction(1)}, {}), "local": Usage({"pods": Fraction(2)}, {})}
    # CPUs and memory have none on the local flavor, pods none at the pool; GPUs there are none.
    assert told(MADE, usage=used)["usage"] == "cpu 1/4, memory 0/8Gi, pods 2/5"


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    first = told(MADE)
    same = told(MADE, first, NOW + 50, conditions=[READY_TRUE._replace(message="still")])
    assert same["conditions"][0]["lastTransitionTime"] == timestamp(NOW)
    other = told(
        MADE, same, NOW + 90, conditions=[Condition(READY, "False", "Refused", "x" * 5000)]
    )
    assert other["conditions"][0]["lastTransitionTime"] == timestamp(NOW + 90)
    assert len(other["conditions"][0]["message"]) <= MAX_MESSAGE


def test_a_failure_keeps_what_was_known() -> None:
    before = told(MADE, conditions=[READY_TRUE, Condition(HEALTHY, "True", "AllAlive", "")])
    found = failed_status(Condition(READY, "False", "InvalidSpec", "why"), 4, before, NOW + 5)
    assert found["pools"] == before["pools"]
    assert [c["type"] for c in found["conditions"]] == [READY, HEALTHY]
    assert (found["conditions"][0]["reason"], found["observedGeneration"]) == ("InvalidSpec", 4)


def test_what_only_says_that_pools_were_heard_again_can_wait() -> None:
    before = told(MADE)
    later = told(MADE, before, reports={("g", "a"): PoolReport(NOW + 10, {"cpu": "8"})})
    news = told(MADE, before, reports={("g", "a"): PoolReport(NOW + 10, {"cpu": "9"})})
    assert not needs_write(before, before, 10**6)
    assert not needs_write(
        later, {**later, "pools": before["pools"][:1] + later["pools"][1:]}, REFRESH_S - 1
    )
    assert needs_write(
        later, {**later, "pools": before["pools"][:1] + later["pools"][1:]}, REFRESH_S
    )
    assert needs_write(news, before, 0)


def test_times_are_written_and_read() -> None:
    assert parse_timestamp(timestamp(NOW)) == NOW
    assert parse_timestamp(None) == parse_timestamp("yesterday") == 0.0


@pytest.mark.parametrize(
    ("offers", "drain", "warnings", "expected"),
    [
        ([], [], {}, ("False", "NoPools", "no pool has been heard of")),
        ([offer("a")], [], {}, ("True", "AllAlive", "all pools are there: 1")),
        ([offer("a"), offer("b", lost="silent")], [], {}, ("False", "PoolsLost", "b: silent")),
        (
            [offer("a", taints=("x",))],
            [],
            {},
            ("False", "PoolsUnused", "a: taints: x is not key=value:effect"),
        ),
        ([offer("a")], [], {("g", "a"): "slow"}, ("False", "Warning", "a: slow")),
        ([offer("a")], ["a"], {}, ("True", "Draining", "a: drained by its MasterQueue")),
        (
            [offer("a"), offer("b", lost="silent")],
            ["a"],
            {},
            ("False", "PoolsLost", "b: silent; a: drained by its MasterQueue"),
        ),
    ],
)
def test_the_health_of_all_pools_in_one_word(
    offers: Any, drain: Any, warnings: Any, expected: tuple[str, str, str]
) -> None:
    made = planned(master(heard(), drain=drain), *offers)
    assert health_condition(made.pools, warnings)[1:] == expected


# --- Events ---------------------------------------------------------------------------------------


def news(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, str]]:
    return [(event.kind, event.reason) for event in status_events(before, after)]


def pool(state: str, name: str = "p", **more: Any) -> dict[str, Any]:
    return {"name": name, "flavor": "g", "state": state, **more}


def test_events_say_what_has_changed() -> None:
    assert news({}, {"pools": [pool("Active"), pool("Lost", "never-heard")]}) == [
        ("Normal", "PoolActive")
    ]
    assert news({"pools": [pool("Active")]}, {"pools": [pool("Active", used={"cpu": "1"})]}) == []
    assert news({"pools": [pool("Active")]}, {"pools": [pool("Lost")]}) == [("Warning", "PoolLost")]
    assert news({"pools": [pool("Lost")]}, {"pools": []}) == [("Normal", "PoolForgotten")]
    assert news({"pools": [pool("Active")]}, {"pools": [pool("Draining")]}) == [
        ("Normal", "PoolDraining")
    ]


def test_an_event_tells_the_offer_or_the_reason() -> None:
    after = {"pools": [pool("Active", effective={"cpu": "4"}), pool("Unused", "q", message="why")]}
    assert [event.message for event in status_events({}, after)] == [
        "pool p (g): offers cpu 4",
        "pool q (g): why",
    ]


def test_readiness_is_an_event_when_its_reason_changes() -> None:
    def ready(value: str, reason: str) -> dict[str, Any]:
        word = {"type": READY, "status": value, "reason": reason, "message": "m"}
        return {"conditions": [word]}

    assert news({}, ready("True", "Reconciled")) == [("Normal", "Reconciled")]
    assert news(ready("True", "Reconciled"), ready("True", "Reconciled")) == []
    assert news(ready("True", "Reconciled"), ready("False", "Refused")) == [("Warning", "Refused")]


def test_an_event_has_a_name_that_kubernetes_takes() -> None:
    item = raw(heard(), name=f"{'x' * 199}.y{'z' * 40}")
    made = event_body(Event("Normal", "PoolActive", "line\nline"), item, NOW)
    assert len(made["metadata"]["name"]) <= 253
    assert ".." not in made["metadata"]["name"]
    assert made["metadata"]["namespace"] == "default"
    assert made["involvedObject"]["uid"] == item["metadata"]["uid"]
    assert "\n" not in made["message"]
