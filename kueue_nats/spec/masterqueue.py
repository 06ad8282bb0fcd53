"""Model of a MasterQueue, read with distrust: perhaps no API server has validated it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

from kueue_nats.spec import template
from kueue_nats.spec.errors import SpecError
from templates.common.errors import Located, PodRejected
from templates.common.names import (
    LABEL_LENGTH,
    TOKEN_RULE,
    check_token,
    is_label,
    is_resource,
    is_subdomain,
)
from templates.common.quantity import quantities_at
from templates.common.validation import flag_at, number_at, object_at, objects_at, text_at, texts_at

GROUP = "vk.io"
VERSION = "v1"
KIND = "MasterQueue"
PLURAL = "masterqueues"
DRAIN_ANNOTATION = "vk.io/drain"  # pools to drain, with commas in between, beside spec.drain

DEFAULT_SUBJECT = "interlink.resources"
DEFAULT_TIMEOUT_S = 60
DEFAULT_RISE_S = 10
MAX_SECONDS = 24 * 3600
MAX_GROUPS = 64
MAX_LENDERS = 64


class SecretRef(NamedTuple):
    """Reference to a password, or a whole connector; always in the operator's namespace."""

    name: str
    key: str


class NatsSource(NamedTuple):
    """Place where pools are heard; flavors with equal ones share a connection."""

    connector: str  # URLs with commas in between; empty: the operator's own connection
    secret: Optional[SecretRef]
    subject: str  # without the pool

    def __repr__(self) -> str:
        return f"Source({self.subject})"  # a connector may hold a password


class NatsFlavor(NamedTuple):
    """Pools that are heard on NATS."""

    source: NatsSource
    virtual_node: str
    timeout_s: int
    pools: tuple[str, ...]
    pattern: Optional[re.Pattern[str]]
    rise_after_s: int
    fall_after_s: int
    return_after_s: Optional[int]  # None: jobs are never given back

    def matches(self, pool: str) -> bool:
        """Return whether a pool is one of these."""
        if self.pattern is not None:
            return self.pattern.fullmatch(pool) is not None
        return pool in self.pools


class Lending(NamedTuple):
    """A queue that may borrow, and how much of each pool; resources not named have no limit."""

    queue: str
    limit: Mapping[str, str]


class Group(NamedTuple):
    """One entry of ``spec.flavors``."""

    name: str
    nats: Optional[NatsFlavor]  # None: a ResourceFlavor of the admin's
    nominal: Mapping[str, str]
    borrowing: Mapping[str, str]
    lends: tuple[Lending, ...]


class MasterQueue(NamedTuple):
    """MasterQueue, validated."""

    name: str
    uid: str
    generation: int
    template: template.Template
    groups: tuple[Group, ...]
    drain: frozenset[str]
    evict_drained: bool


def read(raw: Mapping[str, Any]) -> MasterQueue:
    """Return the MasterQueue in a manifest; raises ``SpecError`` with the field that is wrong."""
    try:
        return _read(raw)
    except SpecError:
        raise
    except Located as error:
        raise SpecError(error.field, error.reason) from None


def _read(raw: Mapping[str, Any]) -> MasterQueue:
    metadata = object_at(raw, "metadata", "")
    name = text_at(metadata, "name", "metadata")
    if not is_subdomain(name):
        raise SpecError("metadata.name", "must be a name of lower-case letters, digits, - and .")
    spec = object_at(raw, "spec", "")
    groups = tuple(
        _group(entry, f"spec.flavors[{index}]")
        for index, entry in enumerate(objects_at(spec, "flavors", "spec"))
    )
    _check_groups(name, groups)
    return MasterQueue(
        name=name,
        uid=text_at(metadata, "uid", "metadata"),
        generation=number_at(metadata, "generation", "metadata") or 0,
        template=template.read(object_at(spec, "template", "spec"), name),
        groups=groups,
        drain=frozenset([*_to_drain(spec), *_drained(metadata)]),
        evict_drained=bool(flag_at(spec, "evictDrained", "spec")),
    )


def _to_drain(spec: Mapping[str, Any]) -> list[str]:
    pools = texts_at(spec, "drain", "spec")
    if "" in pools:
        raise SpecError(f"spec.drain[{pools.index('')}]", "must not be empty")
    return pools


def _drained(metadata: Mapping[str, Any]) -> list[str]:
    text = text_at(object_at(metadata, "annotations", "metadata"), DRAIN_ANNOTATION, "annotations")
    return [pool.strip() for pool in text.split(",") if pool.strip()]


def _check_groups(name: str, groups: tuple[Group, ...]) -> None:
    if not groups:
        raise SpecError("spec.flavors", "must hold at least one flavor")
    if len(groups) > MAX_GROUPS:
        raise SpecError("spec.flavors", f"must hold at most {MAX_GROUPS} flavors")
    seen: dict[str, int] = {}
    for index, group in enumerate(groups):
        first = seen.setdefault(group.name, index)
        if first != index:
            raise SpecError(f"spec.flavors[{index}].name", f"is that of flavors[{first}], too")
        for number, lending in enumerate(group.lends):
            if lending.queue == name:
                field = f"spec.flavors[{index}].canLendTo[{number}].queue"
                raise SpecError(field, "is the MasterQueue's own queue")


def _group(raw: Mapping[str, Any], field: str) -> Group:
    name = text_at(raw, "name", field)
    nats, local = raw.get("natsFlavor"), raw.get("localFlavor")
    if (nats is None) == (local is None):
        raise SpecError(field, "must have exactly one of natsFlavor and localFlavor")
    if nats is None:
        object_at(raw, "localFlavor", field)
        if not is_subdomain(name):
            raise SpecError(f"{field}.name", "must be the name of a ResourceFlavor")
    elif not is_label(name):
        raise SpecError(f"{field}.name", "must be 1 to 63 lower-case letters, digits and dashes")
    return Group(
        name=name,
        nats=None if nats is None else _nats(object_at(raw, "natsFlavor", field), field),
        nominal=_quantities(raw, "nominalQuota", field),
        borrowing=_quantities(raw, "borrowingLimit", field),
        lends=_lends(raw, field),
    )


def _lends(raw: Mapping[str, Any], field: str) -> tuple[Lending, ...]:
    entries = objects_at(raw, "canLendTo", field)
    if len(entries) > MAX_LENDERS:
        raise SpecError(f"{field}.canLendTo", f"must hold at most {MAX_LENDERS} queues")
    lends: list[Lending] = []
    for index, entry in enumerate(entries):
        place = f"{field}.canLendTo[{index}]"
        queue = text_at(entry, "queue", place)
        if not is_subdomain(queue):
            raise SpecError(f"{place}.queue", "must be the name of a ClusterQueue")
        if any(queue == other.queue for other in lends):
            raise SpecError(f"{place}.queue", f"{queue} is there twice")
        lends.append(Lending(queue, _quantities(entry, "lendingLimit", place)))
    return tuple(lends)


def _quantities(raw: Mapping[str, Any], key: str, field: str) -> Mapping[str, str]:
    """Return limits of resources; one of an impossible name would limit nothing, and is refused."""
    found = quantities_at(raw, key, field)
    for name in found:
        if not is_resource(name):
            raise SpecError(f"{field}.{key}['{name}']", "is not the name of a resource")
    return found


def _nats(raw: Mapping[str, Any], field: str) -> NatsFlavor:
    place = f"{field}.natsFlavor"
    pools, pattern = texts_at(raw, "pools", place), text_at(raw, "poolRegExp", place)
    if bool(pools) == bool(pattern):
        raise SpecError(place, "must have exactly one of pools and poolRegExp")
    for index, pool in enumerate(pools):
        check_token(f"{place}.pools[{index}]", pool, SpecError)
    if len(set(pools)) < len(pools):
        raise SpecError(f"{place}.pools", "has a pool twice")
    gives_back = raw.get("returnAfter") is not None
    return NatsFlavor(
        source=_source(raw, place),
        virtual_node=_node(raw, place),
        timeout_s=_seconds(raw, "poolTimeout", place, DEFAULT_TIMEOUT_S, least=1),
        pools=tuple(pools),
        pattern=_pattern(pattern, f"{place}.poolRegExp") if pattern else None,
        rise_after_s=_seconds(raw, "riseAfter", place, DEFAULT_RISE_S),
        fall_after_s=_seconds(raw, "fallAfter", place, 0),
        return_after_s=_seconds(raw, "returnAfter", place, 0) if gives_back else None,
    )


def _node(raw: Mapping[str, Any], field: str) -> str:
    """Return the name of a node, as it stands in the node's own label."""
    node = text_at(raw, "virtualNode", field)
    if node and (len(node) > LABEL_LENGTH or not is_subdomain(node)):
        raise SpecError(f"{field}.virtualNode", f"must be a node's name, at most {LABEL_LENGTH}")
    return node


def _seconds(raw: Mapping[str, Any], key: str, field: str, default: int, *, least: int = 0) -> int:
    value = number_at(raw, key, field)
    value = default if value is None else value
    if not least <= value <= MAX_SECONDS:
        raise SpecError(f"{field}.{key}", f"must be from {least} to {MAX_SECONDS} seconds")
    return value


def _pattern(text: str, field: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise SpecError(field, f"is not a regular expression of Python's: {error}") from None


def _source(raw: Mapping[str, Any], field: str) -> NatsSource:
    subject = text_at(raw, "natsSubject", field, DEFAULT_SUBJECT)
    for token in subject.split("."):
        try:
            check_token(subject, token)
        except PodRejected:
            raise SpecError(f"{field}.natsSubject", f"each part {TOKEN_RULE}") from None
    ref = object_at(raw, "natsConnectorSecretRef", field)
    secret = None
    if ref:
        place = f"{field}.natsConnectorSecretRef"
        secret = SecretRef(*(text_at(ref, key, place) for key in SecretRef._fields))
        for key in SecretRef._fields:
            if not getattr(secret, key):
                raise SpecError(f"{place}.{key}", "is missing")
    parts = text_at(raw, "natsConnector", field).split(",")
    servers = [part.strip() for part in parts if part.strip()]
    for server in servers:
        if not server.startswith(("nats://", "tls://", "ws://", "wss://")):
            # What stands there may hold a password.
            raise SpecError(
                f"{field}.natsConnector", "must begin with nats, tls, ws or wss and ://"
            )
    return NatsSource(",".join(servers), secret, subject)
