"""The environment variables of a container, resolved to their final values.

Two readers: interLink has resolved most already (``received_variables``), a plain manifest leaves
everything to us (``resolved_variables``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Callable, NamedTuple, Optional

from templates.common.errors import PodRejected
from templates.common.quantity import quantities_at
from templates.common.validation import flag_at, object_at, objects_at, text_at, wrong
from templates.pod.environment import PodFields, expand, reference_value
from templates.pod.model import Content

_NAME_RULE = "must be a name without '=' and NUL"


class Asked(NamedTuple):
    """The resources of a container whose other parts are not read yet."""

    name: str
    requests: Mapping[str, str]
    limits: Mapping[str, str]


class Context(NamedTuple):
    """What variables can refer to."""

    pod: PodFields
    spec: Mapping[str, Any]
    where: str  # the path of ``spec``
    config_maps: Mapping[str, Content]
    secrets: Mapping[str, Content]


VariableReader = Callable[[Context, dict[str, Any], str], dict[str, str]]


def received_variables(context: Context, container: dict[str, Any], where: str) -> dict[str, str]:
    """The variables of a create request: values are final and must not be expanded again.

    ``envFrom`` is passed over, because interLink has merged it into ``env``.
    """
    entries = container.get("env")
    if entries is None:
        return {}
    if type(entries) is not list:
        raise wrong(f"{where}.env", "a list", entries)
    return _plain_variables(entries) or _received_one_by_one(context, container, entries, where)


def _plain_variables(entries: list[Any]) -> dict[str, str]:
    """All variables if every one is a plain name with a plain value, else none.

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


def _received_one_by_one(
    context: Context, container: Mapping[str, Any], entries: list[Any], where: str
) -> dict[str, str]:
    env: dict[str, str] = {}
    for index, entry in enumerate(entries):
        if type(entry) is not dict:
            raise wrong(f"{where}.env[{index}]", "an object", entry)
        _add(context, container, entry, f"{where}.env[{index}]", env)
    return env


def _add(
    context: Context,
    container: Mapping[str, Any],
    entry: Mapping[str, Any],
    where: str,
    env: dict[str, str],
) -> None:
    """Add what is not a plain name with a plain value."""
    name = _variable_name(entry, where)
    value: Optional[str] = text_at(entry, "value", where)
    if not value and entry.get("valueFrom") is not None:
        value = _referred(context, container, entry, where)
    if value is not None:
        env[name] = value


def _variable_name(entry: Mapping[str, Any], where: str) -> str:
    name = text_at(entry, "name", where)
    if not name or "=" in name or "\0" in name:
        raise PodRejected(f"{where}.name", _NAME_RULE)
    return name


def resolved_variables(context: Context, container: dict[str, Any], where: str) -> dict[str, str]:
    """The variables of a plain manifest, in the order in which the kubelet resolves them.

    A value may refer to variables above it. Variables of services are not made up: a job cannot
    reach the cluster's network.
    """
    env: dict[str, str] = {}
    for index, source in enumerate(objects_at(container, "envFrom", where)):
        _add_all(context, source, f"{where}.envFrom[{index}]", env)
    for index, entry in enumerate(objects_at(container, "env", where)):
        place = f"{where}.env[{index}]"
        value = text_at(entry, "value", place)
        if value:
            env[_variable_name(entry, place)] = expand(value, env, f"{place}.value")
        else:
            _add(context, container, entry, place, env)
    return env


def _add_all(context: Context, source: Mapping[str, Any], where: str, env: dict[str, str]) -> None:
    prefix = text_at(source, "prefix", where)
    if "=" in prefix or "\0" in prefix:
        raise PodRejected(f"{where}.prefix", _NAME_RULE)
    kinds = [kind for kind in ("configMapRef", "secretRef") if source.get(kind) is not None]
    if len(kinds) != 1:
        raise PodRejected(where, "must have either configMapRef or secretRef")
    place = f"{where}.{kinds[0]}"
    data = _object(context, kinds[0], object_at(source, kinds[0], where), place)
    for key, value in (data or {}).items():
        env[prefix + key] = _decoded(value, place, key)


def _referred(
    context: Context, container: Mapping[str, Any], entry: Mapping[str, Any], where: str
) -> Optional[str]:
    """The value that ``valueFrom`` asks for; None when it is optional and not there."""
    place = f"{where}.valueFrom"
    source = object_at(entry, "valueFrom", where)
    kinds = [kind for kind, ref in source.items() if ref is not None]
    if len(kinds) != 1:
        raise PodRejected(place, "must have exactly one source")
    kind = kinds[0]
    if kind in ("fieldRef", "resourceFieldRef"):
        own = text_at(container, "name", where)
        return reference_value(context.pod, _asked(context), source, place, own=own)
    if kind not in ("configMapKeyRef", "secretKeyRef"):
        raise PodRejected(place, f"{kind} is not supported")
    place = f"{place}.{kind}"
    ref = object_at(source, kind, f"{where}.valueFrom")
    data = _object(context, kind, ref, place)
    if data is None:
        return None
    key = text_at(ref, "key", place)
    if key in data:
        return _decoded(data[key], place, key)
    if flag_at(ref, "optional", place):
        return None
    raise PodRejected(place, f"'{text_at(ref, 'name', place)}' has no key '{key}'")


def _object(
    context: Context, kind: str, ref: Mapping[str, Any], where: str
) -> Optional[Mapping[str, bytes]]:
    """The data of the ConfigMap or Secret; None when it is optional and not there."""
    name = text_at(ref, "name", where)
    in_secret = kind.startswith("secret")
    content = (context.secrets if in_secret else context.config_maps).get(name)
    if content is not None:
        return content.data
    if flag_at(ref, "optional", where):
        return None
    thing = "Secret" if in_secret else "ConfigMap"
    raise PodRejected(where, f"there is no {thing} '{name}' with the pod")


def _decoded(value: bytes, where: str, key: str) -> str:
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        raise PodRejected(where, f"key '{key}' is not text, as a variable must be") from None
    if "\0" in text:
        raise PodRejected(where, f"key '{key}' has a NUL character, which no variable can have")
    return text


def _asked(context: Context) -> Iterator[Asked]:
    """The resources of all containers of the pod; read only when somebody refers to them."""
    for key in ("initContainers", "containers"):
        for index, container in enumerate(objects_at(context.spec, key, context.where)):
            place = f"{context.where}.{key}[{index}]"
            resources = object_at(container, "resources", place)
            requests = quantities_at(resources, "requests", f"{place}.resources")
            limits = quantities_at(resources, "limits", f"{place}.resources")
            yield Asked(text_at(container, "name", place), requests, limits)
