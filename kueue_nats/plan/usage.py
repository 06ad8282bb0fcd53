"""Usage of flavors, and by which queue, from the status of Kueue's queues."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from kueue_nats.plan.planner import Plan
from templates.common.quantity import parse

Amounts = dict[str, Fraction]
Json = Mapping[str, Any]


class Usage(NamedTuple):
    """Usage of one flavor."""

    total: Amounts
    lent: Mapping[str, Amounts]  # by the queue that has borrowed


def plan_usage(plan: Plan, queues: Mapping[str, Json]) -> dict[str, Usage]:
    """Return the usage of each flavor of the plan, over all of its queues."""
    usage = {pool.flavor: Usage({}, {}) for pool in plan.pools if pool.flavor}
    master, *borrowers = [queue.name for queue in plan.queues]
    for name, found in _of_queue(queues.get(master)).items():
        if name in usage:
            _add(usage[name].total, found)
    for borrower in borrowers:
        for name, found in _of_queue(queues.get(borrower)).items():
            if name in usage and any(found.values()):
                _add(usage[name].total, found)
                usage[name] = usage[name]._replace(lent={**usage[name].lent, borrower: found})
    return usage


def inactive_queues(plan: Plan, queues: Mapping[str, Json]) -> list[str]:
    """Return the queues that are inactive though nobody has stopped them, and why."""
    messages = []
    for queue in plan.queues:
        status = queues.get(queue.name, {}).get("status") or {}
        for condition in status.get("conditions") or ():
            stopped = condition.get("reason") == "Stopped" and "stopPolicy" in queue.template.fields
            if (
                condition.get("type") == "Active"
                and condition.get("status") == "False"
                and not stopped
            ):
                messages.append(
                    f"ClusterQueue {queue.name}: {condition.get('message') or 'inactive'}"
                )
    return messages


def _of_queue(queue: Json | None) -> dict[str, Amounts]:
    found: dict[str, Amounts] = {}
    status = (queue or {}).get("status") or {}
    # The usage counts what was reserved; its name is the same in both APIs.
    for flavor in status.get("flavorsUsage") or status.get("flavorsReservation") or ():
        found[flavor["name"]] = {
            resource["name"]: parse(str(resource.get("total", "0")))
            for resource in flavor.get("resources") or ()
        }
    return found


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total[name] + amount if name in total else amount
