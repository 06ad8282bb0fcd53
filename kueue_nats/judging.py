"""What is to be said of a MasterQueue after a look: its conditions, and warnings about pools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kueue_nats import usage
from kueue_nats.model import MasterQueue, NatsFlavor, Source
from kueue_nats.offers import SILENT, Record
from kueue_nats.planning import Plan
from kueue_nats.remembering import Clock, Records
from kueue_nats.reporting import CONNECTED, FALSE, READY, TRUE, Heard, Word
from kueue_nats.steps import Steps

Json = dict[str, Any]


def _pools(wanted: MasterQueue, records: Records) -> Iterator[tuple[str, NatsFlavor, Record]]:
    """Every pool of a MasterQueue that was heard, with its group."""
    for group in wanted.groups:
        for (source, pool), record in records.items():
            if group.nats is not None and source == group.nats.source and group.nats.wants(pool):
                yield group.name, group.nats, record


def heard(wanted: MasterQueue, records: Records) -> Iterator[tuple[tuple[str, str], Heard]]:
    """What its pools have said of themselves, by group and pool."""
    for group, _, record in _pools(wanted, records):
        offered = record.resources
        yield (group, offered.pool), Heard(record.heard_at, offered.quotas)


def notes(
    wanted: MasterQueue, records: Records, clock: Clock, shared: Mapping[tuple[Source, str], str]
) -> dict[tuple[str, str], str]:
    """Warnings about pools that are in use, by group and pool."""
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
    todo: Steps,
    failed: tuple[list[str], list[str]],
    queues: Mapping[str, Json],
) -> Word:
    """Whether all is as it was planned; of what failed: what was refused, and what was undone."""
    refused, undone = failed
    if refused:
        return Word(READY, FALSE, "Refused", "; ".join(refused))
    if undone:
        words = f"{', '.join(undone)}: somebody else changes what is written there each time"
        return Word(READY, FALSE, "Undone", words)
    if todo.foreign:
        words = f"{', '.join(todo.foreign)}: there already, and not ours; it is left alone"
        return Word(READY, FALSE, "Conflict", words)
    inactive = usage.inactive(plan, queues)
    if inactive:
        return Word(READY, FALSE, "QueueInactive", "; ".join(inactive))
    flavors = sum(1 for pool in plan.pools if pool.flavor)
    words = f"ClusterQueues: {', '.join(queue.name for queue in plan.queues)}; flavors: {flavors}"
    return Word(READY, TRUE, "Reconciled", words)


def connected(wanted: MasterQueue, troubles: Mapping[Source, str]) -> Word:
    """Whether its pools can be heard."""
    nats = [group.nats for group in wanted.groups if group.nats is not None]
    if not nats:
        return Word(CONNECTED, TRUE, "NotNeeded", "it has no natsFlavor")
    words = {one.source: troubles.get(one.source, "not connected yet") for one in nats}
    bad = list(dict.fromkeys(filter(None, words.values())))
    if bad:
        return Word(CONNECTED, FALSE, "NotConnected", "; ".join(bad))
    return Word(CONNECTED, TRUE, "Connected", "what pools publish is heard")
