"""MasterQueues to read and pools to offer something, as these tests use them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from kueue_nats.plan.planner import Plan, plan
from kueue_nats.pools.tracker import PoolOffer
from kueue_nats.spec import masterqueue
from kueue_nats.spec.masterqueue import MasterQueue, NatsSource
from templates.settings.files import parse_yaml

UID = "6a1f0c1e-7f0b-4a38-9a36-2f4c9f6f0a11"

# What users have.
MANIFEST = """\
apiVersion: vk.io/v1
kind: MasterQueue
metadata: {name: masterqueue}
spec:
  template: {cohort: masterqueue}
  flavors:
  - name: interlink
    natsFlavor: {natsConnector: "nats://user:password@nats.nats:4222", natsSubject: interlink.resources, virtualNode: interlink, poolTimeout: 30, poolRegExp: ".*"}
    nominalQuota: {pods: 100}
    canLendTo: [{queue: group1, lendingLimit: {pods: 30}}]
  - name: local-cpu
    localFlavor: {}
    nominalQuota: {pods: 100}
    canLendTo: [{queue: group1, lendingLimit: {pods: 30}}]
"""  # noqa: E501

SOURCE = NatsSource("", None, "interlink.resources")


def raw_manifest() -> dict[str, Any]:
    """What users have, as JSON."""
    raw: dict[str, Any] = parse_yaml(MANIFEST, "manifest")
    return raw


def manifest() -> MasterQueue:
    """What users have, read."""
    return masterqueue.read(raw_manifest())


def raw(
    *flavors: Mapping[str, Any],
    name: str = "mq",
    template: Mapping[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A MasterQueue as it stands in the cluster."""
    return {
        "apiVersion": "vk.io/v1",
        "kind": "MasterQueue",
        "metadata": {"name": name, "uid": UID, "generation": 3, "resourceVersion": "17"},
        "spec": {
            **({"template": dict(template)} if template else {}),
            "flavors": copy.deepcopy(list(flavors)),
            **spec,
        },
    }


def master(*flavors: Mapping[str, Any], **more: Any) -> MasterQueue:
    """A MasterQueue, read."""
    return masterqueue.read(raw(*flavors, **more))


def heard(name: str = "g", nats: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A flavor of pools that are heard; all pools, unless it says which."""
    options = dict(nats or {})
    if "pools" not in options:
        options.setdefault("poolRegExp", ".*")
    return {"name": name, "natsFlavor": options, **more}


def local(name: str = "local", **more: Any) -> dict[str, Any]:
    """A flavor of the admin's."""
    return {"name": name, "localFlavor": {}, **more}


def lends(queue: str, **limit: Any) -> dict[str, Any]:
    """One entry of canLendTo."""
    return {"queue": queue, "lendingLimit": limit}


def offer(pool: str, quotas: Mapping[str, Any] | None = None, **more: Any) -> PoolOffer:
    """What counts of a pool."""
    amounts = {name: Fraction(amount) for name, amount in (quotas or {}).items()}
    return PoolOffer(pool, amounts, **more)


def planned(wanted: MasterQueue, *offers: PoolOffer, there: tuple[str, ...] = ("local",)) -> Plan:
    """The plan when all pools are those of the first flavor that hears any."""
    group = next((group.name for group in wanted.groups if group.nats), "")
    return plan(wanted, {group: offers}, there)


def amounts(made: Plan, queue: str, flavor: str) -> dict[str, Any]:
    """The quota of a flavor in a queue: resource -> its amount, or (amount, limit)."""
    found = next(one for one in made.queues if one.name == queue)
    return {
        name: quota.nominal if quota.borrowing is None else (quota.nominal, quota.borrowing)
        for name, quota in zip(found.resources, found.flavors[flavor])
    }
