"""Pools that several MasterQueues share: each counts the quota for itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

from kueue_nats.plan.planner import UNLIMITED
from kueue_nats.pools.tracker import PoolRecord
from kueue_nats.spec.masterqueue import NatsSource
from templates.common.quantity import parse

MAX_NAMED = 5  # resources in a warning

Key = tuple[NatsSource, str]


class PoolShare(NamedTuple):
    """Quota that one MasterQueue counts of a pool."""

    master: str
    effective: Mapping[str, Fraction]


def overcommit_warnings(
    shares: Iterable[tuple[Key, PoolShare]], records: Mapping[Key, PoolRecord]
) -> dict[Key, str]:
    """Return a warning for each pool of which all together count more than it publishes."""
    by_pool: dict[Key, list[PoolShare]] = {}
    for key, share in shares:
        by_pool.setdefault(key, []).append(share)
    found = {}
    for key, sharers in by_pool.items():
        record = records.get(key)
        if record is None or len(sharers) < 2:
            continue
        over = [name for name in record.resources.quotas if _is_over(name, sharers, record)]
        if over:
            names = " and ".join(share.master for share in sharers)
            some = ", ".join(over[:MAX_NAMED]) + (", ..." if len(over) > MAX_NAMED else "")
            found[key] = f"MasterQueues {names} together count more than it offers of {some}"
    return found


def _is_over(name: str, sharers: Iterable[PoolShare], record: PoolRecord) -> bool:
    offered = parse(record.resources.quotas[name])
    total = sum((share.effective.get(name, Fraction(0)) for share in sharers), Fraction(0))
    return total > offered and offered < UNLIMITED.get(name, offered + 1)
