"""Planner: from a MasterQueue and what its pools offer to the flavors and queues that should exist.

Every flavor stands in one resource group, because Kueue lets a resource stand in one only; within
it each lists every resource, in the same order. What Kueue would refuse never gets as far: it is
left out here, and the reason goes into the pool's status.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import zip_longest
from typing import Any, NamedTuple, Optional

from kueue_nats.pools.tracker import PoolOffer
from kueue_nats.spec.errors import SpecError
from kueue_nats.spec.masterqueue import Group, MasterQueue, NatsFlavor
from kueue_nats.spec.template import Template
from templates.common.constants import POOL_TOLERATION, VIRTUAL_NODE_TAINT
from templates.common.errors import PodRejected
from templates.common.names import flavor_name, is_resource, pool_value
from templates.common.quantity import parse

MAX_FLAVORS = 64  # of one resource group
MAX_RESOURCES = 64  # of one resource group
MAX_TAINTS = 8  # of one flavor
HOSTNAME = "kubernetes.io/hostname"
VIRTUAL_NODES = {"virtual-node.interlink/type": "virtual-kubelet"}

# Always covered: a job that asks for a resource that its queue does not cover is never admitted.
# What nobody has said of these is not limited; of anything else (GPUs, licences) there is none.
# Sums must stay below 2**63.
UNLIMITED = {
    "cpu": Fraction(10**6),
    "memory": Fraction(2**50),
    "pods": Fraction(10**5),
    "ephemeral-storage": Fraction(2**54),
}
LARGEST = Fraction(2**55)
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

ACTIVE = "Active"
DRAINING = "Draining"
LOST = "Lost"
UNUSED = "Unused"


class PlannedFlavor(NamedTuple):
    """ResourceFlavor that should exist."""

    name: str
    pool: str
    labels: Mapping[str, str]
    spec: Mapping[str, Any]


class Quota(NamedTuple):
    """Quota of one resource of one flavor in one queue."""

    nominal: Fraction
    borrowing: Optional[Fraction] = None  # None: no limit


class PlannedQueue(NamedTuple):
    """ClusterQueue that should exist; flavors in the order of preference."""

    name: str
    template: Template
    resources: tuple[str, ...]
    flavors: Mapping[str, tuple[Quota, ...]]  # name -> a quota for each resource


class PlannedPool(NamedTuple):
    """Pool, or local flavor, of the MasterQueue."""

    name: str
    group: str
    flavor: str  # the ResourceFlavor; empty if it has none
    state: str
    effective: Mapping[str, Fraction]
    message: str = ""  # it is not used, or not as one might think


class Plan(NamedTuple):
    """All that one MasterQueue asks for."""

    flavors: tuple[PlannedFlavor, ...]
    queues: tuple[PlannedQueue, ...]  # the MasterQueue's own first
    pools: tuple[PlannedPool, ...]


Offers = Mapping[str, Sequence[PoolOffer]]  # by group


class _Entry(NamedTuple):
    """Candidate for a flavor of the queues."""

    group: Group
    pool: PlannedPool
    flavor: Optional[PlannedFlavor]  # None: it is the admin's own


def plan(wanted: MasterQueue, offers: Offers, local_flavors: Iterable[str]) -> Plan:
    """Return what should exist; ``local_flavors`` are the ResourceFlavors that are not ours."""
    there = set(local_flavors)
    entries: list[_Entry] = []
    seen: set[tuple[object, str]] = set()
    for group in wanted.groups:
        if group.nats is None:
            entries.append(_local(group, there, wanted.drain))
            continue
        for offer in offers.get(group.name, ()):
            key = (group.nats.source, offer.pool)
            if key not in seen:  # the first flavor that names a pool has it
                seen.add(key)
                entries.append(_remote(wanted, group, group.nats, offer))
    entries = _limited(entries)
    resources = _resources(wanted, [entry for entry in entries if entry.pool.flavor])
    entries = [_covered(entry, resources) for entry in entries]
    used = [entry for entry in entries if entry.pool.flavor]
    return Plan(
        flavors=tuple(entry.flavor for entry in used if entry.flavor is not None),
        queues=(_master(wanted, used, resources), *_borrowers(wanted, used, resources)),
        pools=tuple(entry.pool for entry in entries),
    )


# --- flavors ------------------------------------------------------------------------------------


def _local(group: Group, there: set[str], drain: frozenset[str]) -> _Entry:
    effective = {name: _amount(text, name) for name, text in group.nominal.items()}
    if group.name not in there:
        message = (
            f"there is no ResourceFlavor {group.name}: a queue that named it would stand still"
        )
        return _Entry(group, PlannedPool(group.name, group.name, "", UNUSED, {}, message), None)
    if group.name in drain:
        none = dict.fromkeys(effective, Fraction(0))
        return _Entry(group, PlannedPool(group.name, group.name, group.name, DRAINING, none), None)
    return _Entry(group, PlannedPool(group.name, group.name, group.name, ACTIVE, effective), None)


def _remote(wanted: MasterQueue, group: Group, nats: NatsFlavor, offer: PoolOffer) -> _Entry:
    if offer.lost:
        return _Entry(group, PlannedPool(offer.pool, group.name, "", LOST, {}, offer.lost), None)
    try:
        flavor = _flavor(wanted, group, nats, offer)
    except (SpecError, PodRejected) as error:
        message = f"{error.field}: {error.reason}"
        return _Entry(group, PlannedPool(offer.pool, group.name, "", UNUSED, {}, message), None)
    message = offer.left_out
    effective = {name: _capped(amount, group, name) for name, amount in offer.quotas.items()}
    state = ACTIVE
    if offer.draining or offer.pool in wanted.drain:
        state, effective = DRAINING, dict.fromkeys(effective, Fraction(0))
        message = message or (
            "the site takes no more jobs" if offer.draining else "drained by its MasterQueue"
        )
    return _Entry(
        group, PlannedPool(offer.pool, group.name, flavor.name, state, effective, message), flavor
    )


def _flavor(wanted: MasterQueue, group: Group, nats: NatsFlavor, offer: PoolOffer) -> PlannedFlavor:
    taints = _taints(offer.taints)
    return PlannedFlavor(
        name=flavor_name(wanted.name, group.name, offer.pool),
        pool=offer.pool,
        labels=dict(filter(None, map(_label, offer.labels))),
        spec={
            "nodeLabels": {HOSTNAME: nats.virtual_node} if nats.virtual_node else VIRTUAL_NODES,
            "nodeTaints": taints,
            "tolerations": [
                {
                    "key": POOL_TOLERATION,
                    "operator": "Equal",
                    "value": pool_value(offer.pool),
                    "effect": "NoSchedule",
                }
            ],
        },
    )


def _taints(texts: Iterable[str]) -> list[dict[str, str]]:
    """Return the taints of a flavor, that of every virtual node first.

    Kueue refuses two of one key and effect.
    """
    taints = [{"key": VIRTUAL_NODE_TAINT, "value": "true", "effect": "NoSchedule"}]
    for text in texts:
        taint = _taint(text)
        if taint in taints:
            continue
        if any((taint["key"], taint["effect"]) == (one["key"], one["effect"]) for one in taints):
            raise SpecError("taints", f"{taint['key']} has two values for {taint['effect']}")
        taints.append(taint)
    if len(taints) > MAX_TAINTS:
        raise SpecError("taints", f"{len(taints)} of them, and a flavor can have {MAX_TAINTS}")
    return taints


def _taint(text: str) -> dict[str, str]:
    """Return a taint; one that cannot be understood keeps the pool from being used."""
    from_key, _, effect = text.rpartition(":")
    key, _, value = from_key.partition("=")
    if effect not in EFFECTS or not is_resource(key) or (value and not _is_value(value)):
        raise SpecError("taints", f"{text[:80]} is not key=value:effect")
    return {"key": key, "value": value, "effect": effect}


def _label(text: str) -> Optional[tuple[str, str]]:
    key, _, value = text.partition("=")
    return (key, value) if is_resource(key) and (not value or _is_value(value)) else None


def _is_value(text: str) -> bool:
    return "/" not in text and is_resource(text)


def _limited(entries: Sequence[_Entry]) -> list[_Entry]:
    """Mark as unused what Kueue has no room for, in the order of preference, and repeated names."""
    kept: list[_Entry] = []
    names: set[str] = set()
    for entry in entries:
        flavor, message = entry.pool.flavor, ""
        if flavor in names:
            message = f"another pool's flavor is called {flavor} already"
        elif flavor and len(names) == MAX_FLAVORS:
            message = f"a ClusterQueue holds {MAX_FLAVORS} flavors: more need another MasterQueue"
        elif flavor:
            names.add(flavor)
        if message:
            unused = entry.pool._replace(flavor="", state=UNUSED, effective={}, message=message)
            entry = entry._replace(flavor=None, pool=unused)
        kept.append(entry)
    return kept


def _covered(entry: _Entry, resources: tuple[str, ...]) -> _Entry:
    """Return the candidate without the resources for which the queue has no room."""
    pool = entry.pool
    over = [name for name in pool.effective if name not in resources] if pool.flavor else []
    if not over:
        return entry
    left_out = f"left out: {', '.join(over[:5])} (a ClusterQueue covers {MAX_RESOURCES} resources)"
    effective = {name: amount for name, amount in pool.effective.items() if name in resources}
    message = "; ".join(filter(None, (pool.message, left_out)))
    return entry._replace(pool=pool._replace(effective=effective, message=message))


# --- quota ----------------------------------------------------------------------------------------


def _amount(text: str, name: str) -> Fraction:
    """Return an amount that Kueue can count with: CPUs as thousandths, and all in 64 bits."""
    return min(parse(text), UNLIMITED.get(name, LARGEST))


def _capped(amount: Fraction, group: Group, name: str) -> Fraction:
    cap = group.nominal.get(name)
    most = min(amount, UNLIMITED.get(name, LARGEST))
    return most if cap is None else min(most, parse(cap))


def _resources(wanted: MasterQueue, used: Sequence[_Entry]) -> tuple[str, ...]:
    """Return the resources to cover: the usual ones, those of the admin, those of pools.

    There is room for so many. Pools take turns, so that none can push out what others offer.
    """
    if not used:
        return ()
    named = [name for group in wanted.groups for name in sorted({*group.nominal, *group.borrowing})]
    known = tuple(dict.fromkeys((*UNLIMITED, *named)))[:MAX_RESOURCES]
    offered = [sorted(entry.pool.effective.keys() - set(known)) for entry in used]
    turns = dict.fromkeys(name for turn in zip_longest(*offered) for name in turn if name)
    return (*known, *sorted([*turns][: MAX_RESOURCES - len(known)]))


def _nominal(entry: _Entry, name: str) -> Fraction:
    """Return the nominal quota; by default the usual resources have no limit, others have none."""
    said = entry.pool.effective.get(name)
    if said is not None:
        return said
    if entry.pool.state == DRAINING:
        return Fraction(0)
    cap = entry.group.nominal.get(name)
    if name not in UNLIMITED:
        return Fraction(0)
    return UNLIMITED[name] if cap is None else _amount(cap, name)


def _master(
    wanted: MasterQueue, used: Sequence[_Entry], resources: tuple[str, ...]
) -> PlannedQueue:
    flavors = {
        entry.pool.flavor: tuple(
            Quota(_nominal(entry, name), _limit(entry.group.borrowing, name, entry))
            for name in resources
        )
        for entry in used
    }
    return PlannedQueue(wanted.name, wanted.template, resources, flavors)


def _limit(limits: Mapping[str, str], name: str, entry: _Entry) -> Optional[Fraction]:
    """Return what a queue may borrow; under drain nothing, whatever others in the cohort have."""
    if entry.pool.state == DRAINING:
        return Fraction(0)
    return _amount(limits[name], name) if name in limits else None


def _borrowers(
    wanted: MasterQueue, used: Sequence[_Entry], resources: tuple[str, ...]
) -> list[PlannedQueue]:
    """Return one queue for each name that a group lends to; it has no quota of its own."""
    names = dict.fromkeys(lending.queue for group in wanted.groups for lending in group.lends)
    return [_borrower(wanted, name, used, resources) for name in names]


def _borrower(
    wanted: MasterQueue, name: str, used: Sequence[_Entry], resources: tuple[str, ...]
) -> PlannedQueue:
    flavors = {}
    for entry in used:
        lending = next((lent for lent in entry.group.lends if lent.queue == name), None)
        if lending is not None:
            flavors[entry.pool.flavor] = tuple(
                Quota(Fraction(0), _borrowed(lending.limit, resource, entry))
                for resource in resources
            )
    return PlannedQueue(name, wanted.template, resources if flavors else (), flavors)


def _borrowed(limits: Mapping[str, str], name: str, entry: _Entry) -> Optional[Fraction]:
    """Return the limit, which never needs to be above the nominal quota."""
    limit = _limit(limits, name, entry)
    return None if limit is None else min(limit, _nominal(entry, name))
