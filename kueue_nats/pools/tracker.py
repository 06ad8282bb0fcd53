"""Publications of pools: the last of each, when it was heard, and what counts now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple, Optional

from kueue_nats.pools import hysteresis
from kueue_nats.pools.hysteresis import History
from kueue_nats.spec.masterqueue import MAX_SECONDS, NatsFlavor, NatsSource
from templates.common.names import is_resource
from templates.common.quantity import parse
from templates.protocol.publications import Resources

# A pool that is lost for so long is not shown any more; poolTimeout and returnAfter are over then.
FORGET_S = 3.0 * MAX_SECONDS
SILENT = "its batch system cannot be asked"
MAX_POOLS = 2000  # heard at one source; a flood of invented names must not fill the memory


class PoolRecord(NamedTuple):
    """Pool as it was heard last; what it repeats while it is in trouble does not count."""

    resources: Resources
    heard_s: float  # on the clock that timeouts are measured by
    heard_at: float  # seconds since 1970
    histories: Mapping[str, History]
    pause_s: float = 0.0  # between its last two publications
    restored: bool = False  # from before a restart: not heard by this process yet


class PoolOffer(NamedTuple):
    """Offer of a pool, as it counts now."""

    pool: str
    quotas: Mapping[str, Fraction]
    labels: tuple[str, ...] = ()
    taints: tuple[str, ...] = ()
    draining: bool = False
    left_out: str = ""  # what of its resources does not count, and why
    lost: str = ""  # why it does not count any more


class PoolTracker:
    """Table of all pools of all sources; only for the thread of the asyncio loop.

    Records are replaced, never changed: a copy of the table is a snapshot for another thread.
    """

    def __init__(self) -> None:
        self._records: dict[tuple[NatsSource, str], PoolRecord] = {}

    def record(self, source: NatsSource, resources: Resources, now_s: float, now: float) -> bool:
        """Record a publication; return False if there are too many pools to add one."""
        key = (source, resources.pool)
        before = self._records.get(key)
        if resources.trouble and before is not None:  # its last word, which grows old
            said = resources._replace(quotas=before.resources.quotas)
            self._records[key] = before._replace(resources=said)
            return True
        if before is None and sum(1 for other, _ in self._records if other == source) >= MAX_POOLS:
            return False
        if before is not None and before.restored:
            before = None  # what it says now counts at once
        known = {} if before is None else before.histories
        histories = {
            name: hysteresis.append_sample(
                known.get(name) or _nothing(before), now_s, parse(text), 2 * MAX_SECONDS
            )
            for name, text in resources.quotas.items()
        }
        pause = 0.0 if before is None else now_s - before.heard_s
        self._records[key] = PoolRecord(resources, now_s, now, histories, pause)
        return True

    def latest(self, source: NatsSource, pool: str) -> Optional[Resources]:
        """Return the last publication of a pool."""
        record = self._records.get((source, pool))
        return record and record.resources

    def restore(self, records: Mapping[tuple[NatsSource, str], PoolRecord]) -> None:
        """Add pools from before a restart, unless they were heard meanwhile."""
        self._records = {**records, **self._records}

    def extend_timeouts(self, seconds: float) -> None:
        """Extend all timeouts by a time in which this process could not listen."""
        self._records = {
            key: record._replace(heard_s=record.heard_s + seconds)
            for key, record in self._records.items()
        }

    def prune(self, sources: Iterable[NatsSource], now_s: float) -> None:
        """Forget what was heard at other sources, or long ago."""
        wanted = set(sources)
        self._records = {
            key: record
            for key, record in self._records.items()
            if key[0] in wanted and now_s - record.heard_s < FORGET_S
        }

    def snapshot(self) -> dict[tuple[NatsSource, str], PoolRecord]:
        """Return a copy of all records."""
        return dict(self._records)


def restored_record(
    resources: Resources,
    heard_s: float,
    heard_at: float,
    counted: Optional[Mapping[str, str]] = None,
) -> PoolRecord:
    """Return a pool as it was before a restart; ``counted`` if less counted than it published."""
    quotas = resources.quotas if counted is None else counted
    histories = {
        name: hysteresis.append_sample((), heard_s, parse(text), 0) for name, text in quotas.items()
    }
    return PoolRecord(resources, heard_s, heard_at, histories, restored=True)


def _nothing(before: Optional[PoolRecord]) -> History:
    """Return the history of a resource that a known pool offers for the first time: it had none."""
    if before is None or not before.histories:
        return ()
    return (hysteresis.Sample(before.heard_s, Fraction(0)),)


def current_offers(
    records: Mapping[tuple[NatsSource, str], PoolRecord], nats: NatsFlavor, now_s: float
) -> list[PoolOffer]:
    """Return what counts now of the pools of one flavor: in the order of the list, else by name."""
    heard = {pool: record for (source, pool), record in records.items() if source == nats.source}
    names = nats.pools or sorted(filter(nats.matches, heard))
    return [_offer(name, heard.get(name), nats, now_s) for name in names]


def _offer(pool: str, record: Optional[PoolRecord], nats: NatsFlavor, now_s: float) -> PoolOffer:
    if record is None:
        return PoolOffer(pool, {}, lost="not heard of yet")
    lost, error = "", record.resources.trouble
    if now_s - record.heard_s >= nats.timeout_s:
        silent = SILENT if error else "not heard of"
        lost = f"{silent} for {nats.timeout_s} s (poolTimeout)"
        lost = ": ".join(filter(None, (lost, error)))
    elif error and not record.histories:
        lost = f"{SILENT}: {error}"
    return PoolOffer(
        pool=pool,
        quotas={
            name: hysteresis.effective_amount(history, now_s, nats.rise_after_s, nats.fall_after_s)
            for name, history in record.histories.items()
            if is_resource(name)  # an older operator has kept all that was published
        },
        labels=record.resources.labels,
        taints=record.resources.taints,
        draining=record.resources.draining,
        left_out=record.resources.left_out,
        lost=lost,
    )
