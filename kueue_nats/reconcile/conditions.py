"""Conditions of a MasterQueue, and warnings about its pools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kueue_nats.plan import usage
from kueue_nats.plan.planner import Plan
from kueue_nats.pools.tracker import SILENT, PoolRecord
from kueue_nats.reconcile.restore import Clock, Records
from kueue_nats.spec.masterqueue import MasterQueue, NatsFlavor, NatsSource
from kueue_nats.status.status import CONNECTED, FALSE, READY, TRUE, Condition, PoolReport

Json = dict[str, Any]


class Failures(NamedTuple):
    """Failures of a round for one MasterQueue."""

    refused: Sequence[str]  # errors of writes
    undone: Sequence[str]  # objects that somebody else changes back each time
    foreign: Sequence[str]  # objects of names that are needed, which are not ours


def _pools(master: MasterQueue, records: Records) -> Iterator[tuple[str, NatsFlavor, PoolRecord]]:
    """Yield every pool of a MasterQueue that was heard, with its group."""
    for group in master.groups:
        for (source, pool), record in records.items():
            if group.nats is not None and source == group.nats.source and group.nats.matches(pool):
                yield group.name, group.nats, record


def pool_reports(
    master: MasterQueue, records: Records
) -> Iterator[tuple[tuple[str, str], PoolReport]]:
    """Yield what pools have published, by group and pool."""
    for group, _, record in _pools(master, records):
        offered = record.resources
        yield (group, offered.pool), PoolReport(record.heard_at, offered.quotas)


def pool_warnings(
    master: MasterQueue,
    records: Records,
    clock: Clock,
    overcommitted: Mapping[tuple[NatsSource, str], str],
) -> dict[tuple[str, str], str]:
    """Return warnings about pools that are in use, by group and pool."""
    found = {}
    for group, nats, record in _pools(master, records):
        pool = record.resources.pool
        messages = [overcommitted.get((nats.source, pool), "")]
        is_lost = clock.now_s - record.heard_s >= nats.timeout_s
        if record.resources.trouble and record.histories and not is_lost:
            messages.append(f"{SILENT}: {record.resources.trouble}")
        pause = record.resources.interval_s or int(record.pause_s)
        if pause > nats.timeout_s / 2 and not is_lost:
            messages.append(
                f"speaks every {pause} s only, and poolTimeout is {nats.timeout_s} s: "
                "lower pools[].timing.resources_s at the site, or raise poolTimeout"
            )
        if any(messages):
            found[group, pool] = "; ".join(filter(None, messages))
    return found


def ready_condition(plan: Plan, failures: Failures, queues: Mapping[str, Json]) -> Condition:
    """Return the condition Ready: whether all is as it was planned."""
    if failures.refused:
        return Condition(READY, FALSE, "Refused", "; ".join(failures.refused))
    if failures.undone:
        names = ", ".join(failures.undone)
        message = f"{names}: somebody else changes what is written there each time"
        return Condition(READY, FALSE, "Undone", message)
    if failures.foreign:
        names = ", ".join(failures.foreign)
        message = f"{names}: there already, and not ours; it is left alone"
        return Condition(READY, FALSE, "Conflict", message)
    inactive = usage.inactive_queues(plan, queues)
    if inactive:
        return Condition(READY, FALSE, "QueueInactive", "; ".join(inactive))
    flavors = sum(1 for pool in plan.pools if pool.flavor)
    message = f"ClusterQueues: {', '.join(queue.name for queue in plan.queues)}; flavors: {flavors}"
    return Condition(READY, TRUE, "Reconciled", message)


def connected_condition(master: MasterQueue, errors: Mapping[NatsSource, str]) -> Condition:
    """Return the condition NATSConnected: whether the pools can be heard."""
    nats = [group.nats for group in master.groups if group.nats is not None]
    if not nats:
        return Condition(CONNECTED, TRUE, "NotNeeded", "it has no natsFlavor")
    messages = [errors.get(one.source, "not connected yet") for one in nats]
    failed = list(dict.fromkeys(filter(None, messages)))
    if failed:
        return Condition(CONNECTED, FALSE, "NotConnected", "; ".join(failed))
    return Condition(CONNECTED, TRUE, "Connected", "what pools publish is heard")
