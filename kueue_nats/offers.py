"""What pools have said, when, and what of it counts now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple, Optional

from kueue_nats import steady
from kueue_nats.model import LONGEST_S, NatsFlavor, Source, is_resource
from kueue_nats.steady import History
from templates.publications import Resources
from templates.quantity import parse

# A pool that is lost for so long is not shown any more; poolTimeout and returnAfter are over then.
FORGET_S = 3.0 * LONGEST_S
SILENT = "its batch system cannot be asked"
MOST_POOLS = 2000  # heard at one source; a flood of invented names must not fill the memory


class Record(NamedTuple):
    """One pool, as it was heard last; what it repeats while it is in trouble does not count."""

    resources: Resources
    heard_s: float  # on the clock that timeouts are measured by
    heard_at: float  # seconds since 1970
    histories: Mapping[str, History]
    pause_s: float = 0.0  # between its last two publications
    remembered: bool = False  # from before a restart: not heard by this process yet


class Offer(NamedTuple):
    """What counts of a pool now."""

    pool: str
    quotas: Mapping[str, Fraction]
    labels: tuple[str, ...] = ()
    taints: tuple[str, ...] = ()
    draining: bool = False
    foreign: tuple[str, ...] = ()  # names that no resource of Kubernetes' can have
    lost: str = ""  # why it does not count any more


class Tracker:
    """All pools of all sources, in the thread of the asyncio loop.

    Records are replaced, never changed: a copy of the table is a snapshot for another thread.
    """

    def __init__(self) -> None:
        self._records: dict[tuple[Source, str], Record] = {}

    def hear(self, source: Source, resources: Resources, now_s: float, now: float) -> bool:
        """Take in a publication; False if there are too many pools to take in one more."""
        key = (source, resources.pool)
        before = self._records.get(key)
        if resources.trouble and before is not None:  # its last word, which grows old
            said = resources._replace(quotas=before.resources.quotas)
            self._records[key] = before._replace(resources=said)
            return True
        if before is None and sum(1 for other, _ in self._records if other == source) >= MOST_POOLS:
            return False
        if before is not None and before.remembered:
            before = None  # what it says now counts at once
        known = {} if before is None else before.histories
        histories = {
            name: steady.added(
                known.get(name) or _nothing(before), now_s, parse(text), 2 * LONGEST_S
            )
            for name, text in resources.quotas.items()
        }
        pause = 0.0 if before is None else now_s - before.heard_s
        self._records[key] = Record(resources, now_s, now, histories, pause)
        return True

    def said(self, source: Source, pool: str) -> Optional[Resources]:
        """What a pool has said last."""
        record = self._records.get((source, pool))
        return record and record.resources

    def remember(self, records: Mapping[tuple[Source, str], Record]) -> None:
        """Pools that were there before a restart, unless they were heard meanwhile."""
        self._records = {**records, **self._records}

    def forgive(self, seconds: float) -> None:
        """Time in which this process could not listen does not count against anybody."""
        self._records = {
            key: record._replace(heard_s=record.heard_s + seconds)
            for key, record in self._records.items()
        }

    def keep(self, sources: Iterable[Source], now_s: float) -> None:
        """Forget what was heard at other sources, or long ago."""
        wanted = set(sources)
        self._records = {
            key: record
            for key, record in self._records.items()
            if key[0] in wanted and now_s - record.heard_s < FORGET_S
        }

    def snapshot(self) -> dict[tuple[Source, str], Record]:
        """All records, as they are now."""
        return dict(self._records)


def remembered(
    resources: Resources,
    heard_s: float,
    heard_at: float,
    counted: Optional[Mapping[str, str]] = None,
) -> Record:
    """A pool as it was before a restart; ``counted`` if that was not all that it had published."""
    quotas = resources.quotas if counted is None else counted
    histories = {name: steady.added((), heard_s, parse(text), 0) for name, text in quotas.items()}
    return Record(resources, heard_s, heard_at, histories, remembered=True)


def _nothing(before: Optional[Record]) -> History:
    """Of a resource that a known pool offers for the first time: until now it offered none."""
    if before is None or not before.histories:
        return ()
    return (steady.Step(before.heard_s, Fraction(0)),)


def offers(
    records: Mapping[tuple[Source, str], Record], nats: NatsFlavor, now_s: float
) -> list[Offer]:
    """What counts at a moment of the pools of one flavor: as they are listed, else by name."""
    heard = {pool: record for (source, pool), record in records.items() if source == nats.source}
    names = nats.pools or sorted(filter(nats.wants, heard))
    return [_offer(name, heard.get(name), nats, now_s) for name in names]


def _offer(pool: str, record: Optional[Record], nats: NatsFlavor, now_s: float) -> Offer:
    if record is None:
        return Offer(pool, {}, lost="not heard of yet")
    lost, trouble = "", record.resources.trouble
    if now_s - record.heard_s >= nats.timeout_s:
        silent = SILENT if trouble else "not heard of"
        lost = f"{silent} for {nats.timeout_s} s (poolTimeout)"
        lost = ": ".join(filter(None, (lost, trouble)))
    elif trouble and not record.histories:
        lost = f"{SILENT}: {trouble}"
    known = {name: history for name, history in record.histories.items() if is_resource(name)}
    return Offer(
        pool=pool,
        quotas={
            name: steady.held(history, now_s, nats.rise_after_s, nats.fall_after_s)
            for name, history in known.items()
        },
        labels=record.resources.labels,
        taints=record.resources.taints,
        draining=record.resources.draining,
        foreign=tuple(sorted(record.histories.keys() - known.keys())),
        lost=lost,
    )
