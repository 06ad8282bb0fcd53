"""The template: words of both of Kueue's APIs are understood, wrong ones explained."""

from __future__ import annotations

from typing import Any

import pytest

from kueue_nats.plan import objects as kueue_objects
from kueue_nats.plan import planner
from kueue_nats.plan.objects import NEW, OLD
from kueue_nats.spec import template
from kueue_nats.spec.errors import SpecError
from templates.common.errors import Located

OWNER = {"uid": "u"}


def spec(raw: dict[str, Any], version: str = NEW) -> dict[str, Any]:
    """The spec of the ClusterQueue that a template comes to, without its quota."""
    queue = planner.PlannedQueue("q", template.read(raw, "mq"), (), {})
    made = dict(kueue_objects.cluster_queue(queue, OWNER, version)["spec"])
    del made["resourceGroups"]
    return made


@pytest.mark.parametrize(
    ("raw", "cohort"),
    [
        ({}, "mq"),
        ({"cohort": "a"}, "a"),
        ({"cohortName": "a.b"}, "a.b"),
        ({"cohort": "a", "cohortName": "a"}, "a"),
        ({"cohort": "", "cohortName": "a"}, "a"),
    ],
)
def test_the_cohort_has_the_name_of_either_api(raw: dict[str, Any], cohort: str) -> None:
    assert template.read(raw, "mq").cohort == cohort
    assert spec(raw, NEW) == {"cohortName": cohort, "namespaceSelector": {}}
    assert spec(raw, OLD) == {"cohort": cohort, "namespaceSelector": {}}


# What is written, and what becomes of it with the newer API and with the older one.
TRANSLATED = [
    ({"queueingStrategy": "StrictFIFO"}, {"queueingStrategy": "StrictFIFO"}, None),
    ({"queueingStrategy": "BestEffortFIFO"}, {"queueingStrategy": "BestEffortFIFO"}, None),
    ({"stopPolicy": "None"}, {"stopPolicy": "None"}, None),
    ({"stopPolicy": "Hold"}, {"stopPolicy": "Hold"}, None),
    ({"stopPolicy": "HoldAndDrain"}, {"stopPolicy": "HoldAndDrain"}, None),
    (
        {"flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}},
        {
            "flavorFungibility": {
                "whenCanBorrow": "MayStopSearch",
                "whenCanPreempt": "MayStopSearch",
            }
        },
        {"flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}},
    ),
    (
        {"flavorFungibility": {"whenCanBorrow": "MayStopSearch"}},
        {"flavorFungibility": {"whenCanBorrow": "MayStopSearch"}},
        {"flavorFungibility": {"whenCanBorrow": "Borrow"}},
    ),
    (
        {"flavorFungibility": {"whenCanPreempt": "MayStopSearch"}},
        {"flavorFungibility": {"whenCanPreempt": "MayStopSearch"}},
        {"flavorFungibility": {"whenCanPreempt": "Preempt"}},
    ),
    (
        {
            "flavorFungibility": {
                "whenCanBorrow": "TryNextFlavor",
                "whenCanPreempt": "TryNextFlavor",
                "preference": "PreemptionOverBorrowing",
            }
        },
        {
            "flavorFungibility": {
                "whenCanBorrow": "TryNextFlavor",
                "whenCanPreempt": "TryNextFlavor",
                "preference": "PreemptionOverBorrowing",
            }
        },
        None,
    ),
    ({"flavorFungibility": {}}, {}, None),
    (
        {
            "preemption": {
                "reclaimWithinCohort": "Any",
                "withinClusterQueue": "LowerOrNewerEqualPriority",
                "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": -100},
            }
        },
        {
            "preemption": {
                "reclaimWithinCohort": "Any",
                "withinClusterQueue": "LowerOrNewerEqualPriority",
                "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": -100},
            }
        },
        None,
    ),
    (
        {"preemption": {"borrowWithinCohort": {"policy": "Never", "maxPriorityThreshold": 0}}},
        {"preemption": {"borrowWithinCohort": {"policy": "Never", "maxPriorityThreshold": 0}}},
        None,
    ),
    (
        {"admissionChecks": ["a", "b"]},
        {"admissionChecksStrategy": {"admissionChecks": [{"name": "a"}, {"name": "b"}]}},
        None,
    ),
    (
        {"admissionChecksStrategy": {"admissionChecks": [{"name": "a", "onFlavors": ["f"]}]}},
        {"admissionChecksStrategy": {"admissionChecks": [{"name": "a", "onFlavors": ["f"]}]}},
        None,
    ),
    ({"admissionChecks": [], "admissionChecksStrategy": {}}, {}, None),
    ({"fairSharing": {"weight": 2}}, {"fairSharing": {"weight": "2"}}, None),
    ({"fairSharing": {"weight": 0.5}}, {"fairSharing": {"weight": "0.5"}}, None),
    ({"fairSharing": {"weight": "500m"}}, {"fairSharing": {"weight": "500m"}}, None),
    ({"fairSharing": {"weight": 0}}, {"fairSharing": {"weight": "0"}}, None),
    ({"fairSharing": {}}, {}, None),
]


@pytest.mark.parametrize(("raw", "new", "old"), TRANSLATED)
def test_words_of_either_api_become_those_of_the_one_that_is_served(
    raw: dict[str, Any], new: dict[str, Any], old: dict[str, Any] | None
) -> None:
    common = {"namespaceSelector": {}}
    assert spec(raw, NEW) == {"cohortName": "mq", **common, **new}
    assert spec(raw, OLD) == {"cohort": "mq", **common, **(new if old is None else old)}


@pytest.mark.parametrize("selector", [None, {}, {"matchLabels": {"team": "a"}}])
def test_without_a_selector_every_namespace_may_use_the_queue(selector: Any) -> None:
    assert spec({"namespaceSelector": selector})["namespaceSelector"] == (selector or {})


WRONG = [
    ({"cohort": "a", "cohortName": "b"}, ".cohortName", "must not differ from cohort"),
    ({"cohort": "A"}, ".cohort", "lower-case"),
    ({"cohort": 1}, ".cohort", "a string"),
    ({"queueingStrategy": "FIFO"}, ".queueingStrategy", "BestEffortFIFO or StrictFIFO, not 'FIFO'"),
    ({"queueingStrategy": ""}, ".queueingStrategy", "not ''"),
    ({"queueingStrategy": 1}, ".queueingStrategy", "not a number"),
    ({"stopPolicy": "Stop"}, ".stopPolicy", "Stop is not a word of Kueue's: write Hold,"),
    (
        {"stopPolicy": "StopAndHold"},
        ".stopPolicy",
        "StopAndHold is not a word of Kueue's: write HoldAndDrain,",
    ),
    ({"stopPolicy": "hold"}, ".stopPolicy", "None, Hold or HoldAndDrain, not 'hold'"),
    ({"stopPolicy": []}, ".stopPolicy", "not a list"),
    ({"stopPolicy": False}, ".stopPolicy", "not a boolean"),
    ({"namespaceSelector": "all"}, ".namespaceSelector", "an object"),
    ({"namespaceSelector": []}, ".namespaceSelector", "an object"),
    ({"namespaceSelector": ""}, ".namespaceSelector", "an object"),
    ({"flavorFungibility": []}, ".flavorFungibility", "an object"),
    (
        {"flavorFungibility": {"whenCanBorrow": "Preempt"}},
        ".flavorFungibility.whenCanBorrow",
        "Borrow",
    ),
    (
        {"flavorFungibility": {"whenCanPreempt": "Borrow"}},
        ".flavorFungibility.whenCanPreempt",
        "Preempt",
    ),
    ({"flavorFungibility": {"preference": "Any"}}, ".flavorFungibility.preference", "Borrowing"),
    ({"preemption": {"reclaimWithinCohort": "any"}}, ".preemption.reclaimWithinCohort", "or Any"),
    ({"preemption": {"withinClusterQueue": "Any"}}, ".preemption.withinClusterQueue", "Never"),
    (
        {"preemption": {"borrowWithinCohort": "Never"}},
        ".preemption.borrowWithinCohort",
        "an object",
    ),
    (
        {"preemption": {"borrowWithinCohort": {"policy": "Any"}}},
        ".preemption.borrowWithinCohort.policy",
        "Never or LowerPriority",
    ),
    (
        {"preemption": {"borrowWithinCohort": {"maxPriorityThreshold": "1"}}},
        ".preemption.borrowWithinCohort.maxPriorityThreshold",
        "a whole number",
    ),
    ({"admissionChecks": "a"}, ".admissionChecks", "a list"),
    ({"admissionChecks": [1]}, ".admissionChecks[0]", "a string"),
    (
        {"admissionChecks": ["a"], "admissionChecksStrategy": {"admissionChecks": [{"name": "a"}]}},
        ".admissionChecks",
        "beside its strategy",
    ),
    (
        {"admissionChecksStrategy": {"admissionChecks": [{"name": "a"}, {"onFlavors": ["f"]}]}},
        ".admissionChecksStrategy.admissionChecks[1].name",
        "is missing",
    ),
    (
        {"admissionChecksStrategy": {"admissionChecks": [{"name": "a", "onFlavors": "f"}]}},
        ".admissionChecksStrategy.admissionChecks[0].onFlavors",
        "a list",
    ),
    ({"fairSharing": 2}, ".fairSharing", "an object"),
    ({"fairSharing": {"weight": "heavy"}}, ".fairSharing.weight", "a number"),
    ({"fairSharing": {"weight": True}}, ".fairSharing.weight", "a number"),
    ({"fairSharing": {"weight": -1}}, ".fairSharing.weight", "not negative"),
    ({"fairSharing": {"weight": float("nan")}}, ".fairSharing.weight", "a number"),
]


@pytest.mark.parametrize(("raw", "where", "what"), WRONG)
def test_a_wrong_word_is_one_line_that_names_the_field(
    raw: dict[str, Any], where: str, what: str
) -> None:
    with pytest.raises(Located) as caught:
        template.read(raw, "mq")
    assert caught.value.field == f"spec.template{where}"
    assert what in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_a_cohort_the_name_of_the_master_queue_must_be_fit_for_one() -> None:
    with pytest.raises(SpecError, match=r"spec\.template\.cohort"):
        template.read({}, "Not-a-name")
