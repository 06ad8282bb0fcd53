"""Template of all queues of a MasterQueue, in terms of either version of Kueue's API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kueue_nats.spec.errors import SpecError
from templates.common.names import is_subdomain
from templates.common.quantity import is_quantity
from templates.common.validation import object_at, objects_at, text_at, texts_at, wrong_choice

STRATEGIES = ("BestEffortFIFO", "StrictFIFO")
STOP_POLICIES = ("None", "Hold", "HoldAndDrain")
OLD_STOP_POLICIES = {"Stop": "Hold", "StopAndHold": "HoldAndDrain"}
# v1beta1's word -> v1beta2's; the latter are known to both of ours.
CAN_BORROW = {
    "Borrow": "MayStopSearch",
    "MayStopSearch": "MayStopSearch",
    "TryNextFlavor": "TryNextFlavor",
}
CAN_PREEMPT = {
    "Preempt": "MayStopSearch",
    "MayStopSearch": "MayStopSearch",
    "TryNextFlavor": "TryNextFlavor",
}
PREFERENCES = ("BorrowingOverPreemption", "PreemptionOverBorrowing")
WITHIN_QUEUE = ("Never", "LowerPriority", "LowerOrNewerEqualPriority")
RECLAIM = ("Never", "LowerPriority", "Any")
BORROW_WITHIN = ("Never", "LowerPriority")

Json = Mapping[str, Any]


class Template(NamedTuple):
    """ClusterQueue's spec without its quota, in terms of v1beta2."""

    cohort: str
    fields: Json  # as they stand in the spec of a ClusterQueue


def read(raw: Json, name: str) -> Template:
    """Return the template of a MasterQueue; its name is the cohort where none is given."""
    field = "spec.template"
    old, new = text_at(raw, "cohort", field), text_at(raw, "cohortName", field)
    if old and new and old != new:
        raise SpecError(f"{field}.cohortName", "must not differ from cohort")
    cohort = old or new or name
    if not is_subdomain(cohort):
        raise SpecError(f"{field}.cohort", "must be a name of lower-case letters, digits, - and .")
    fields: dict[str, Any] = {
        # Without a selector no namespace may use the queue.
        "namespaceSelector": object_at(raw, "namespaceSelector", field),
        "queueingStrategy": _choice(raw, "queueingStrategy", field, STRATEGIES),
        "stopPolicy": _stop_policy(raw, field),
        "flavorFungibility": _fungibility(raw, field),
        "preemption": _preemption(raw, field),
        "admissionChecksStrategy": _checks(raw, field),
        "fairSharing": _fair_sharing(raw, field),
    }
    kept = {key: value for key, value in fields.items() if value or key == "namespaceSelector"}
    return Template(cohort, kept)


def _choice(raw: Json, key: str, field: str, values: tuple[str, ...]) -> str:
    value = raw.get(key)
    if value is not None and value not in values:
        raise wrong_choice(f"{field}.{key}", values, value)
    return value or ""


def _stop_policy(raw: Json, field: str) -> str:
    value = raw.get("stopPolicy")
    if type(value) is str and value in OLD_STOP_POLICIES:
        meant = OLD_STOP_POLICIES[value]
        message = f"{value} is not a word of Kueue's: write {meant}, which is what it meant"
        raise SpecError(f"{field}.stopPolicy", message)
    return _choice(raw, "stopPolicy", field, STOP_POLICIES)


def _fungibility(raw: Json, field: str) -> Json:
    given, place = object_at(raw, "flavorFungibility", field), f"{field}.flavorFungibility"
    borrow = _choice(given, "whenCanBorrow", place, tuple(CAN_BORROW))
    preempt = _choice(given, "whenCanPreempt", place, tuple(CAN_PREEMPT))
    return _given(
        whenCanBorrow=CAN_BORROW.get(borrow),
        whenCanPreempt=CAN_PREEMPT.get(preempt),
        preference=_choice(given, "preference", place, PREFERENCES),
    )


def _preemption(raw: Json, field: str) -> Json:
    given, place = object_at(raw, "preemption", field), f"{field}.preemption"
    within, below = object_at(given, "borrowWithinCohort", place), f"{place}.borrowWithinCohort"
    threshold = within.get("maxPriorityThreshold")
    if threshold is not None and type(threshold) is not int:
        raise SpecError(f"{below}.maxPriorityThreshold", "must be a whole number")
    borrow = _given(policy=_choice(within, "policy", below, BORROW_WITHIN))
    if threshold is not None:
        borrow["maxPriorityThreshold"] = threshold
    return _given(
        borrowWithinCohort=borrow,
        reclaimWithinCohort=_choice(given, "reclaimWithinCohort", place, RECLAIM),
        withinClusterQueue=_choice(given, "withinClusterQueue", place, WITHIN_QUEUE),
    )


def _checks(raw: Json, field: str) -> Json:
    """Return the admission checks; the older API's list has no flavors."""
    names = texts_at(raw, "admissionChecks", field)
    strategy = object_at(raw, "admissionChecksStrategy", field)
    if names and strategy:
        raise SpecError(f"{field}.admissionChecks", "must not be given beside its strategy")
    place = f"{field}.admissionChecksStrategy"
    checks: list[Json] = [{"name": name} for name in names]
    for index, entry in enumerate(objects_at(strategy, "admissionChecks", place)):
        at = f"{place}.admissionChecks[{index}]"
        name = text_at(entry, "name", at)
        if not name:
            raise SpecError(f"{at}.name", "is missing")
        checks.append(_given(name=name, onFlavors=texts_at(entry, "onFlavors", at)))
    return {"admissionChecks": checks} if checks else {}


def _fair_sharing(raw: Json, field: str) -> Json:
    weight = object_at(raw, "fairSharing", field).get("weight")
    if weight is None:
        return {}
    if type(weight) not in (int, float, str) or not is_quantity(str(weight)):
        raise SpecError(f"{field}.fairSharing.weight", "must be a number that is not negative")
    return {"weight": str(weight)}


def _given(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value}
