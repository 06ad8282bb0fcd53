"""Conditions of a MasterQueue, and warnings about its pools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kueue_nats import usage
from kueue_nats.model import MasterQueue, NatsFlavor, NatsSource
from kueue_nats.offers import SILENT, PoolRecord
from kueue_nats.planning import Plan
from kueue_nats.remembering import Clock, Records
from kueue_nats.reporting import CONNECTED, FALSE, READY, TRUE, Condition, PoolReport
from kueue_nats.steps import Actions

Json = dict[str, Any]


def _pools(wanted: MasterQueue, records: Records) -> Iterator[tuple[str, NatsFlavor, PoolRecord]]:
    """Yield every pool of a MasterQueue that was heard, with its group."""
    for group in wanted.groups:
        for (source, pool), record in records.items():
            if group.nats is not None and source == group.nats.source and group.nats.wants(pool):
                yield group.name, group.nats, record


def heard(wanted: MasterQueue, records: Records) -> Iterator[tuple[tuple[str, str], PoolReport]]:
    """Yield what pools have published, by group and pool."""
    for group, _, record in _pools(wanted, records):
        offered = record.resources
        yield (group, offered.pool), PoolReport(record.heard_at, offered.quotas)


def notes(
    wanted: MasterQueue,
    records: Records,
    clock: Clock,
    shared: Mapping[tuple[NatsSource, str], str],
) -> dict[tuple[str, str], str]:
    """Return warnings about pools that are in use, by group and pool."""
    found = {}
    for group, nats, record in _pools(wanted, records):
        pool = record.resources.pool
        words = [shared.get((nats.source, pool), "")]
        is_lost = clock.now_s - record.heard_s >= nats.timeout_s
        if record.resources.trouble and record.histories and not is_lost:
            words.append(f"{SILENT}: {record.resources.trouble}")
        pause = record.resources.interval_s or int(record.pause_s)
        if pause > nats.timeout_s / 2 and not is_lost:
            words.append(
                f"speaks every {pause} s only, and poolTimeout is {nats.timeout_s} s: "
                "lower pools[].timing.resources_s at the site, or raise poolTimeout"
            )
        if any(words):
            found[group, pool] = "; ".join(filter(None, words))
    return found


def ready(
    plan: Plan,
    todo: Actions,
    failed: tuple[list[str], list[str]],
    queues: Mapping[str, Json],
) -> Condition:
    """Return the condition Ready: whether all is as it was planned."""
    refused, undone = failed
    if refused:
        return Condition(READY, FALSE, "Refused", "; ".join(refused))
    if undone:
        words = f"{', '.join(undone)}: somebody else changes what is written there each time"
        return Condition(READY, FALSE, "Undone", words)
    if todo.foreign:
        words = f"{', '.join(todo.foreign)}: there already, and not ours; it is left alone"
        return Condition(READY, FALSE, "Conflict", words)
    inactive = usage.inactive(plan, queues)
    if inactive:
        return Condition(READY, FALSE, "QueueInactive", "; ".join(inactive))
    flavors = sum(1 for pool in plan.pools if pool.flavor)
    words = f"ClusterQueues: {', '.join(queue.name for queue in plan.queues)}; flavors: {flavors}"
    return Condition(READY, TRUE, "Reconciled", words)


def connected(wanted: MasterQueue, troubles: Mapping[NatsSource, str]) -> Condition:
    """Return the condition NATSConnected: whether the pools can be heard."""
    nats = [group.nats for group in wanted.groups if group.nats is not None]
    if not nats:
        return Condition(CONNECTED, TRUE, "NotNeeded", "it has no natsFlavor")
    words = {one.source: troubles.get(one.source, "not connected yet") for one in nats}
    bad = list(dict.fromkeys(filter(None, words.values())))
    if bad:
        return Condition(CONNECTED, FALSE, "NotConnected", "; ".join(bad))
    return Condition(CONNECTED, TRUE, "Connected", "what pools publish is heard")
