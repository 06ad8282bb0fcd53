"""Kubernetes' ``$(VAR)`` expansion and the downward API.

Serves variables (``variables.py``) as well as downwardAPI volumes; both kinds of pod, the one
being read and the finished one, fit the two protocols below.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import ceil
from re import Match
from typing import Protocol

from templates.common import quantity
from templates.common.errors import PodRejected
from templates.common.validation import object_at, text_at
from templates.pod.budget import LONGEST_MAP, Budget

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
_NOT_PLAIN = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}
# A job shares the network of its node, which nobody knows before the job starts.
_ADDRESSES = frozenset(("status.podIP", "status.podIPs", "status.hostIP", "status.hostIPs"))
_LOCALHOST = "127.0.0.1"


class PodFields(Protocol):
    """Fields of a pod that a fieldRef can name."""

    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def annotations(self) -> Mapping[str, str]: ...
    @property
    def node_name(self) -> str: ...
    @property
    def service_account(self) -> str: ...


class ContainerFields(Protocol):
    """Fields of a container that a resourceFieldRef can name."""

    @property
    def requests(self) -> Mapping[str, str]: ...
    @property
    def limits(self) -> Mapping[str, str]: ...


def expand(text: str, env: Mapping[str, str], budget: Budget, field: str) -> str:
    """Replace ``$(NAME)`` by its value and ``$$`` by ``$``; unknown names stay as they are."""
    if "$" not in text:
        return text

    def replace(match: Match[str]) -> str:
        name = match.group(1)
        if name is None:
            return "$"
        value = env.get(name)
        if value is None:
            return match.group()
        budget.take("references", len(value), field)
        return value

    end = _end_of_references(text)
    return _REFERENCE.sub(replace, text[:end]) + text[end:].replace("$$", "$")


def _end_of_references(text: str) -> int:
    """Return where no reference can begin any more: to look for the end of each takes long."""
    return text.rfind(")") + 1


def missing_names(text: str, env: Mapping[str, str]) -> Iterable[str]:
    """Return the names that a text refers to and that have no value or an empty one."""
    found = _REFERENCE.finditer(text, 0, _end_of_references(text))
    names = (match.group(1) for match in found)
    return (name for name in names if name is not None and not env.get(name))


def go_quote(text: str) -> str:
    """Quote as Go's ``%q`` does, which is how Kubernetes writes labels into files."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(c if c.isalnum() else _escape(c) for c in text) + '"'


def _escape(character: str) -> str:
    if character in _NOT_PLAIN:
        return _NOT_PLAIN[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _format_map(values: Mapping[str, str], field: str) -> str:
    characters = sum(map(len, values)) + sum(map(len, values.values()))
    if characters > LONGEST_MAP:
        reason = f"{characters} characters of labels or annotations are more than {LONGEST_MAP}"
        raise PodRejected(field, reason)
    return "\n".join(f"{key}={go_quote(values[key])}" for key in sorted(values))


def field_value(pod: PodFields, path: str, field: str) -> str:
    """Return the value of a fieldRef; empty for a label or annotation that the pod has not."""
    plain = {
        "metadata.name": pod.name,
        "metadata.namespace": pod.namespace,
        "metadata.uid": pod.uid,
        "spec.nodeName": pod.node_name,
        "spec.serviceAccountName": pod.service_account,
    }
    if path in plain:
        return plain[path]
    if path in _ADDRESSES:
        return _LOCALHOST
    maps = {"metadata.labels": pod.labels, "metadata.annotations": pod.annotations}
    if path in maps:
        return _format_map(maps[path], field)
    head, bracket, key = path.partition("['")
    if head in maps and bracket and key.endswith("']"):
        return maps[head].get(key[:-2], "")
    raise PodRejected(field, f"a pod has no such field for its containers: {path or 'none given'}")


def resource_value(
    containers: Mapping[str, ContainerFields],
    ref: Mapping[str, object],
    field: str,
    *,
    own: str = "",
) -> str:
    """Return the value of a resourceFieldRef, in units of its divisor and rounded up.

    ``containers`` are the pod's, by name; ``own`` is the one that is meant when the reference names
    none. A request that is missing is taken from the limit, as the API server does. A limit that is
    missing would be the node's allocatable, which nobody knows before the job starts: it is taken
    from the request, else 0.
    """
    name = text_at(ref, "containerName", field) or own
    container = containers.get(name)
    if container is None:
        raise PodRejected(f"{field}.containerName", f"the pod has no container '{name}'")
    path = text_at(ref, "resource", field)
    kind, _, resource = path.partition(".")
    if kind not in ("limits", "requests") or not _is_referable(resource):
        raise PodRejected(f"{field}.resource", f"not a resource that can be referred to: {path}")
    first, second = container.limits, container.requests
    if kind == "requests":
        first, second = second, first
    amount = first.get(resource) or second.get(resource) or "0"
    divisor = _read_divisor(ref, field)
    if resource == "cpu":
        return str(ceil(Fraction(quantity.cpu_milli(amount, field)) / (divisor * 1000)))
    return str(ceil(Fraction(quantity.byte_count(amount, field)) / divisor))


def _is_referable(resource: str) -> bool:
    return resource in ("cpu", "memory", "ephemeral-storage") or resource.startswith("hugepages-")


def _read_divisor(ref: Mapping[str, object], field: str) -> Fraction:
    subfield = f"{field}.divisor"
    divisor = quantity.parse(quantity.as_text(ref.get("divisor"), subfield) or "0", subfield)
    if divisor < 0:
        raise PodRejected(subfield, "must not be negative")
    return divisor or Fraction(1)  # 0 is how "not given" arrives


def reference_value(
    pod: PodFields,
    containers: Mapping[str, ContainerFields],
    source: Mapping[str, object],
    field: str,
    *,
    own: str = "",
) -> str:
    """Return the value of a downward API item, an object with fieldRef or resourceFieldRef."""
    field_ref = object_at(source, "fieldRef", field)
    resource_ref = object_at(source, "resourceFieldRef", field)
    if bool(field_ref) == bool(resource_ref):
        raise PodRejected(field, "must have either fieldRef or resourceFieldRef")
    if field_ref:
        subfield = f"{field}.fieldRef.fieldPath"
        return field_value(pod, text_at(field_ref, "fieldPath", f"{field}.fieldRef"), subfield)
    return resource_value(containers, resource_ref, f"{field}.resourceFieldRef", own=own)
