"""The status of a MasterQueue: conditions in plain words, and what is known of each pool."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from fractions import Fraction
from typing import Any, NamedTuple

from kueue_nats.kueue_objects import text_of
from kueue_nats.planning import ACTIVE, DRAINING, LOST, UNLIMITED, UNUSED, Plan, Pool
from kueue_nats.usage import Usage
from templates.errors import one_line

READY, CONNECTED, HEALTHY = "Ready", "NATSConnected", "PoolsHealthy"
TRUE, FALSE = "True", "False"
LONGEST = 1000  # characters of a condition's message
REFRESH_S = 60  # what only says that all is as before is written no more often

Json = dict[str, Any]


class Word(NamedTuple):
    """A condition, without its times."""

    kind: str
    status: str
    reason: str
    message: str


class Heard(NamedTuple):
    """What a pool has said of itself."""

    at: float  # seconds since 1970
    published: Mapping[str, str]


class Seen(NamedTuple):
    """Everything that goes into a status, besides the plan."""

    generation: int
    words: Sequence[Word]
    heard: Mapping[tuple[str, str], Heard]  # by (group, pool)
    usage: Mapping[str, Usage]
    notes: Mapping[tuple[str, str], str]  # warnings about a pool, by (group, pool)


def status(plan: Plan, seen: Seen, before: Json, now: float) -> Json:
    """The whole status; conditions keep the time at which they last changed."""
    remote = [
        pool for pool in plan.pools if (pool.group, pool.name) in seen.heard or pool.state == LOST
    ]
    alive = [pool for pool in remote if pool.state in (ACTIVE, DRAINING)]
    return {
        "observedGeneration": seen.generation,
        "conditions": _conditions(seen.words, seen.generation, before, now),
        "poolsAlive": len(alive),
        "poolsKnown": len(remote),
        "poolsSummary": f"{len(alive)}/{len(remote)}",
        "usage": _summary(plan, seen.usage),
        "pools": [_pool(pool, seen) for pool in plan.pools],
    }


def failed(word: Word, generation: int, before: Json, now: float) -> Json:
    """The status of a MasterQueue of which nothing can be made: what was known stays."""
    words = [word, *_kept(before)]
    return {
        **before,
        "observedGeneration": generation,
        "conditions": _conditions(words, generation, before, now),
    }


def must_be_written(wanted: Json, before: Json, age_s: float) -> bool:
    """Whether it says something new; that pools were heard again is told once a minute."""
    if wanted == before:
        return False
    return _told(wanted) != _told(before) or age_s >= REFRESH_S


def health(pools: Iterable[Pool], notes: Mapping[tuple[str, str], str]) -> Word:
    """Whether all pools are there and all that they offer is used."""
    pools = list(pools)
    lost = [f"{pool.name}: {pool.why}" for pool in pools if pool.state == LOST]
    unused = [f"{pool.name}: {pool.why}" for pool in pools if pool.state == UNUSED]
    warnings = [f"{name}: {words}" for (_, name), words in notes.items()]
    warnings += [f"{p.name}: {p.why}" for p in pools if p.why and p.state in (ACTIVE, DRAINING)]
    every = [*lost, *unused, *warnings]
    if not pools:
        return Word(HEALTHY, FALSE, "NoPools", "no pool has been heard of")
    if not every:
        return Word(HEALTHY, TRUE, "AllAlive", f"all pools are there: {len(pools)}")
    drained = (
        not lost
        and not unused
        and not notes
        and all(pool.state == DRAINING for pool in pools if pool.why)
    )
    reason = "PoolsLost" if lost else "PoolsUnused" if unused else "Warning"
    message = "; ".join(every)
    return Word(HEALTHY, *((TRUE, "Draining") if drained else (FALSE, reason)), message)


def moment(seconds: float) -> str:
    """A time as Kubernetes writes it."""
    return datetime.fromtimestamp(int(seconds), timezone.utc).isoformat().replace("+00:00", "Z")


def seconds_of(text: object) -> float:
    """The time that ``moment`` wrote; 0 for anything else."""
    try:
        return datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0


# --- parts ----------------------------------------------------------------------------------------


def _conditions(words: Iterable[Word], generation: int, before: Json, now: float) -> list[Json]:
    earlier = {entry.get("type"): entry for entry in before.get("conditions") or ()}
    made = []
    for word in words:
        old = earlier.get(word.kind) or {}
        same = old.get("status") == word.status and old.get("lastTransitionTime")
        made.append(
            {
                "type": word.kind,
                "status": word.status,
                "reason": word.reason,
                "message": one_line(word.message, LONGEST),
                "observedGeneration": generation,
                "lastTransitionTime": same or moment(now),
            }
        )
    return made


def _kept(before: Json) -> list[Word]:
    entries = before.get("conditions") or ()
    return [
        Word(entry["type"], entry["status"], entry["reason"], entry.get("message", ""))
        for entry in entries
        if entry.get("type") != READY
    ]


def _pool(pool: Pool, seen: Seen) -> Json:
    key = (pool.group, pool.name)
    heard, used = seen.heard.get(key), seen.usage.get(pool.flavor, Usage({}, {}))
    entry: Json = {
        "name": pool.name,
        "flavor": pool.group,
        "state": pool.state,
        "resourceFlavor": pool.flavor,
        "lastHeard": moment(heard.at) if heard and heard.at else None,
        "published": dict(heard.published) if heard else None,
        "effective": _texts(pool.effective),
        "used": _texts(used.total),
        "lentTo": [
            {"queue": queue, "used": _texts(amounts)} for queue, amounts in used.lent.items()
        ],
        "message": "; ".join(filter(None, (pool.why, seen.notes.get(key, "")))),
    }
    return {key: value for key, value in entry.items() if value or key == "state"}


def _texts(amounts: Mapping[str, Fraction]) -> dict[str, str]:
    return {name: text_of(amount, name) for name, amount in amounts.items()}


def _summary(plan: Plan, usage: Mapping[str, Usage]) -> str:
    """Used and offered of what has a limit, over the flavors where it has one."""
    parts = []
    for place, name in enumerate(plan.queues[0].resources):
        unlimited = UNLIMITED.get(name)
        quotas = plan.queues[0].flavors.items()
        limited = {f: q[place].nominal for f, q in quotas if q[place].nominal != unlimited}
        total = sum(limited.values(), Fraction(0))
        used = sum((usage[flavor].total.get(name, Fraction(0)) for flavor in limited), Fraction(0))
        if total:
            parts.append(f"{name} {text_of(used, name)}/{text_of(total, name)}")
    return ", ".join(parts)


def _told(status: Json) -> Json:
    """What is worth a write at once."""
    pools = [{**pool, "lastHeard": None} for pool in status.get("pools") or ()]
    return {**status, "pools": pools}
