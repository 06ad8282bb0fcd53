"""Status of a MasterQueue: its conditions, and what is known of each pool."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from fractions import Fraction
from typing import Any, NamedTuple

from kueue_nats.plan.objects import format_quantity
from kueue_nats.plan.planner import ACTIVE, DRAINING, LOST, UNLIMITED, UNUSED, Plan, PlannedPool
from kueue_nats.plan.usage import Usage
from templates.common.errors import one_line

READY, CONNECTED, HEALTHY = "Ready", "NATSConnected", "PoolsHealthy"
TRUE, FALSE = "True", "False"
MAX_MESSAGE = 1000  # characters of a condition's message, or of a pool's
MAX_SHARE = 250  # of it for one pool: what sites say must not hide what is said of others
REFRESH_S = 60  # what only says that all is as before is written no more often

Json = dict[str, Any]


class Condition(NamedTuple):
    """Condition, without its times."""

    kind: str
    status: str
    reason: str
    message: str


class PoolReport(NamedTuple):
    """Last publication of a pool, as the status shows it."""

    heard_at: float  # seconds since 1970
    published: Mapping[str, str]


class StatusInput(NamedTuple):
    """Input of a status, besides the plan."""

    generation: int
    conditions: Sequence[Condition]
    reports: Mapping[tuple[str, str], PoolReport]  # by (group, pool)
    usage: Mapping[str, Usage]
    warnings: Mapping[tuple[str, str], str]  # warnings about a pool, by (group, pool)


def build_status(plan: Plan, given: StatusInput, before: Json, now: float) -> Json:
    """Return the whole status; conditions keep the time at which they last changed."""
    remote = [
        pool
        for pool in plan.pools
        if (pool.group, pool.name) in given.reports or pool.state == LOST
    ]
    alive = [pool for pool in remote if pool.state in (ACTIVE, DRAINING)]
    return {
        "observedGeneration": given.generation,
        "conditions": _conditions(given.conditions, given.generation, before, now),
        "poolsAlive": len(alive),
        "poolsKnown": len(remote),
        "poolsSummary": f"{len(alive)}/{len(remote)}",
        "usage": _summary(plan, given.usage),
        "pools": [_pool(pool, given) for pool in plan.pools],
    }


def failed_status(ready: Condition, generation: int, before: Json, now: float) -> Json:
    """Return the status of a MasterQueue that cannot be reconciled: what was known stays."""
    conditions = [ready, *_kept_conditions(before)]
    return {
        **before,
        "observedGeneration": generation,
        "conditions": _conditions(conditions, generation, before, now),
    }


def needs_write(wanted: Json, before: Json, age_s: float) -> bool:
    """Return whether a status has changed; that pools were heard again is written once a minute."""
    if wanted == before:
        return False
    return _without_times(wanted) != _without_times(before) or age_s >= REFRESH_S


def health_condition(
    pools: Iterable[PlannedPool], warned: Mapping[tuple[str, str], str]
) -> Condition:
    """Return the condition PoolsHealthy: whether all pools are alive, and their offers used."""
    pools = list(pools)
    lost = [_about(pool.name, pool.message) for pool in pools if pool.state == LOST]
    unused = [_about(pool.name, pool.message) for pool in pools if pool.state == UNUSED]
    warnings = [_about(name, message) for (_, name), message in warned.items()]
    warnings += [
        _about(p.name, p.message) for p in pools if p.message and p.state in (ACTIVE, DRAINING)
    ]
    every = [*lost, *unused, *warnings]
    if not pools:
        return Condition(HEALTHY, FALSE, "NoPools", "no pool has been heard of")
    if not every:
        return Condition(HEALTHY, TRUE, "AllAlive", f"all pools are there: {len(pools)}")
    drained = (
        not lost
        and not unused
        and not warned
        and all(pool.state == DRAINING for pool in pools if pool.message)
    )
    reason = "PoolsLost" if lost else "PoolsUnused" if unused else "Warning"
    message = "; ".join(every)
    return Condition(HEALTHY, *((TRUE, "Draining") if drained else (FALSE, reason)), message)


def timestamp(seconds: float) -> str:
    """Format a time as Kubernetes does."""
    return datetime.fromtimestamp(int(seconds), timezone.utc).isoformat().replace("+00:00", "Z")


def parse_timestamp(text: object) -> float:
    """Parse a time of ``timestamp``; return 0 for anything else."""
    try:
        return datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0


# --- parts ----------------------------------------------------------------------------------------


def _about(pool: str, message: str) -> str:
    return one_line(f"{pool}: {message}", MAX_SHARE)


def _conditions(
    conditions: Iterable[Condition], generation: int, before: Json, now: float
) -> list[Json]:
    earlier = {entry.get("type"): entry for entry in before.get("conditions") or ()}
    made = []
    for one in conditions:
        old = earlier.get(one.kind) or {}
        same = old.get("status") == one.status and old.get("lastTransitionTime")
        made.append(
            {
                "type": one.kind,
                "status": one.status,
                "reason": one.reason,
                "message": one_line(one.message, MAX_MESSAGE),
                "observedGeneration": generation,
                "lastTransitionTime": same or timestamp(now),
            }
        )
    return made


def _kept_conditions(before: Json) -> list[Condition]:
    entries = before.get("conditions") or ()
    return [
        Condition(entry["type"], entry["status"], entry["reason"], entry.get("message", ""))
        for entry in entries
        if entry.get("type") != READY
    ]


def _pool(pool: PlannedPool, given: StatusInput) -> Json:
    key = (pool.group, pool.name)
    report, used = given.reports.get(key), given.usage.get(pool.flavor, Usage({}, {}))
    messages = filter(None, (pool.message, given.warnings.get(key, "")))
    entry: Json = {
        "name": pool.name,
        "flavor": pool.group,
        "state": pool.state,
        "resourceFlavor": pool.flavor,
        "lastHeard": timestamp(report.heard_at) if report and report.heard_at else None,
        "published": dict(report.published) if report else None,
        "effective": _texts(pool.effective),
        "used": _texts(used.total),
        "lentTo": [
            {"queue": queue, "used": _texts(amounts)} for queue, amounts in used.lent.items()
        ],
        "message": one_line("; ".join(messages), MAX_MESSAGE),
    }
    return {key: value for key, value in entry.items() if value or key == "state"}


def _texts(amounts: Mapping[str, Fraction]) -> dict[str, str]:
    return {name: format_quantity(amount, name) for name, amount in amounts.items()}


def _summary(plan: Plan, usage: Mapping[str, Usage]) -> str:
    """Return used and offered amounts of what has a limit, over the flavors where it has one."""
    parts = []
    for place, name in enumerate(plan.queues[0].resources):
        unlimited = UNLIMITED.get(name)
        quotas = plan.queues[0].flavors.items()
        limited = {f: q[place].nominal for f, q in quotas if q[place].nominal != unlimited}
        total = sum(limited.values(), Fraction(0))
        used = sum((usage[flavor].total.get(name, Fraction(0)) for flavor in limited), Fraction(0))
        if total:
            parts.append(f"{name} {format_quantity(used, name)}/{format_quantity(total, name)}")
    return ", ".join(parts)


def _without_times(status: Json) -> Json:
    """Return the part of a status that is written at once when it changes."""
    pools = [{**pool, "lastHeard": None} for pool in status.get("pools") or ()]
    return {**status, "pools": pools}
