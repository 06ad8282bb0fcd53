"""The environment variables of a container, resolved to their final values.

Two readers: interLink has resolved most already (``read_variables``), a plain manifest leaves
everything to us (``resolve_variables``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable, NamedTuple, Optional

from templates.common.errors import PodRejected
from templates.common.quantity import quantities_at
from templates.common.validation import flag_at, object_at, objects_at, text_at, wrong_type
from templates.pod.budget import Budget
from templates.pod.environment import PodFields, expand, reference_value
from templates.pod.model import Content

_NAME_RULE = "must be a name without '=' and NUL"


class ContainerResources(NamedTuple):
    """The resources of a container whose other parts are not read yet."""

    requests: Mapping[str, str]
    limits: Mapping[str, str]


class Context(NamedTuple):
    """The objects that variables can refer to, and the budget for what they stand for."""

    pod: PodFields
    spec: Mapping[str, Any]
    field: str  # the path of ``spec``
    config_maps: Mapping[str, Content]
    secrets: Mapping[str, Content]
    resources: dict[str, ContainerResources]  # empty until a variable refers to them
    budget: Budget


VariableReader = Callable[[Context, dict[str, Any], str], dict[str, str]]


def read_variables(context: Context, container: dict[str, Any], field: str) -> dict[str, str]:
    """Read the variables of a create request: final values, which must not be expanded again.

    ``envFrom`` is passed over, because interLink has merged it into ``env``.
    """
    entries = container.get("env")
    if entries is None:
        return {}
    if type(entries) is not list:
        raise wrong_type(f"{field}.env", "a list", entries)
    return _read_plain(entries) or _read_one_by_one(context, container, entries, field)


def _read_plain(entries: list[Any]) -> dict[str, str]:
    """Return all variables if every one is a plain name with a plain value, else none.

    That is how nearly all requests are, and checking them together takes a third of the time.
    """
    try:
        env = {entry["name"]: entry["value"] for entry in entries}
        names, values = "".join(env), "".join(env.values())  # fails when one is no text
    except (KeyError, TypeError):
        return {}
    if not values or "=" in names or "" in env or "" in env.values():
        return {}
    return env


def _read_one_by_one(
    context: Context, container: Mapping[str, Any], entries: list[Any], field: str
) -> dict[str, str]:
    env: dict[str, str] = {}
    for index, entry in enumerate(entries):
        if type(entry) is not dict:
            raise wrong_type(f"{field}.env[{index}]", "an object", entry)
        _add_variable(context, container, entry, f"{field}.env[{index}]", env)
    return env


def _add_variable(
    context: Context,
    container: Mapping[str, Any],
    entry: Mapping[str, Any],
    field: str,
    env: dict[str, str],
) -> None:
    """Add a variable that is not a plain name with a plain value."""
    name = _read_name(entry, field)
    value: Optional[str] = text_at(entry, "value", field)
    if not value and entry.get("valueFrom") is not None:
        value = _resolve_reference(context, container, entry, field)
        context.budget.take("references", len(value or ""), field)
    if value is not None:
        env[name] = value


def _read_name(entry: Mapping[str, Any], field: str) -> str:
    name = text_at(entry, "name", field)
    if not name or "=" in name or "\0" in name:
        raise PodRejected(f"{field}.name", _NAME_RULE)
    return name


def resolve_variables(context: Context, container: dict[str, Any], field: str) -> dict[str, str]:
    """Resolve the variables of a plain manifest, in the order of the kubelet.

    A value may refer to variables above it. Variables of services are not made up: a job cannot
    reach the cluster's network.
    """
    env: dict[str, str] = {}
    for index, source in enumerate(objects_at(container, "envFrom", field)):
        _add_from_source(context, source, f"{field}.envFrom[{index}]", env)
    for index, entry in enumerate(objects_at(container, "env", field)):
        subfield = f"{field}.env[{index}]"
        value = text_at(entry, "value", subfield)
        if value:
            name = _read_name(entry, subfield)
            env[name] = expand(value, env, context.budget, f"{subfield}.value")
        else:
            _add_variable(context, container, entry, subfield, env)
    return env


def _add_from_source(
    context: Context, source: Mapping[str, Any], field: str, env: dict[str, str]
) -> None:
    prefix = text_at(source, "prefix", field)
    if "=" in prefix or "\0" in prefix:
        raise PodRejected(f"{field}.prefix", _NAME_RULE)
    kinds = [kind for kind in ("configMapRef", "secretRef") if source.get(kind) is not None]
    if len(kinds) != 1:
        raise PodRejected(field, "must have either configMapRef or secretRef")
    subfield = f"{field}.{kinds[0]}"
    data = _find_data(context, kinds[0], object_at(source, kinds[0], field), subfield)
    for key, value in (data or {}).items():
        context.budget.take("references", len(prefix) + len(key) + len(value), subfield)
        env[prefix + key] = _decode_value(value, subfield, key)


def _resolve_reference(
    context: Context, container: Mapping[str, Any], entry: Mapping[str, Any], field: str
) -> Optional[str]:
    """Return the value that ``valueFrom`` refers to; None if it is optional and missing."""
    subfield = f"{field}.valueFrom"
    source = object_at(entry, "valueFrom", field)
    kinds = [kind for kind, ref in source.items() if ref is not None]
    if len(kinds) != 1:
        raise PodRejected(subfield, "must have exactly one source")
    kind = kinds[0]
    if kind in ("fieldRef", "resourceFieldRef"):
        own = text_at(container, "name", field)
        return reference_value(
            context.pod, _container_resources(context), source, subfield, own=own
        )
    if kind not in ("configMapKeyRef", "secretKeyRef"):
        raise PodRejected(subfield, f"{kind} is not supported")
    subfield = f"{subfield}.{kind}"
    ref = object_at(source, kind, f"{field}.valueFrom")
    data = _find_data(context, kind, ref, subfield)
    if data is None:
        return None
    key = text_at(ref, "key", subfield)
    if key in data:
        return _decode_value(data[key], subfield, key)
    if flag_at(ref, "optional", subfield):
        return None
    raise PodRejected(subfield, f"'{text_at(ref, 'name', subfield)}' has no key '{key}'")


def _find_data(
    context: Context, kind: str, ref: Mapping[str, Any], field: str
) -> Optional[Mapping[str, bytes]]:
    """Return the data of the ConfigMap or Secret; None if it is optional and missing."""
    name = text_at(ref, "name", field)
    in_secret = kind.startswith("secret")
    content = (context.secrets if in_secret else context.config_maps).get(name)
    if content is not None:
        return content.data
    if flag_at(ref, "optional", field):
        return None
    title = "Secret" if in_secret else "ConfigMap"
    raise PodRejected(field, f"there is no {title} '{name}' with the pod")


def _decode_value(value: bytes, field: str, key: str) -> str:
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        raise PodRejected(field, f"key '{key}' is not text, as a variable must be") from None
    if "\0" in text:
        raise PodRejected(field, f"key '{key}' has a NUL character, which no variable can have")
    return text


def _container_resources(context: Context) -> Mapping[str, ContainerResources]:
    """Return the resources of all containers by name; read when a variable first needs them."""
    if context.resources:
        return context.resources
    for key in ("initContainers", "containers"):
        for index, container in enumerate(objects_at(context.spec, key, context.field)):
            subfield = f"{context.field}.{key}[{index}]"
            resources = object_at(container, "resources", subfield)
            requests = quantities_at(resources, "requests", f"{subfield}.resources")
            limits = quantities_at(resources, "limits", f"{subfield}.resources")
            name = text_at(container, "name", subfield)
            context.resources.setdefault(name, ContainerResources(requests, limits))
    return context.resources
