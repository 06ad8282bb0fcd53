"""Comparison of objects, whatever the API server has added, in any notation of quantities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from templates.common.errors import PodRejected
from templates.common.quantity import parse

# Fields whose values are quantities: "1" and "1000m" are the same.
_QUANTITIES = ("nominalQuota", "borrowingLimit", "lendingLimit", "weight")


def is_superset(actual: Any, wanted: Any) -> bool:
    """Return whether an object holds all that is wanted; it may hold more, but no longer lists.

    Empty texts and lists may have been left out. Empty objects may not: that of a selector means
    all, and none at all means nothing.
    """
    if actual == wanted:  # nearly always, and much sooner known than what follows
        return True
    if isinstance(wanted, Mapping):
        return isinstance(actual, Mapping) and all(
            _same_amount(actual.get(key), value)
            if key in _QUANTITIES
            else is_superset(actual.get(key), value)
            for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        if not wanted and actual is None:
            return True
        return (
            isinstance(actual, list)
            and len(actual) == len(wanted)
            and all(map(is_superset, actual, wanted))
        )
    return bool(wanted == "" and actual is None)


def _same_amount(actual: Any, wanted: Any) -> bool:
    try:
        return parse(str(actual)) == parse(str(wanted))
    except PodRejected:
        return False
