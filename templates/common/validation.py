"""Type-checked access to decoded JSON, with the path of the field in every error.

An absent field and a null one are the same, as they are to Kubernetes. ``where`` is the path of the
object; the path of the field is put together only for an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional, Union

from templates.common.errors import PodRejected

LARGEST = 2**31 - 1  # Kubernetes' own bound for most of its numbers

_KINDS = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "an object",
}
_EMPTY_OBJECT: dict[str, Any] = {}  # shared: readers never write into what they read
_EMPTY_LIST: list[Any] = []

_Place = tuple[Any, Union[str, int]]  # the place that holds it, or None; and what is behind that


def wrong_type(where: str, expected: str, value: object) -> PodRejected:
    """Return the error for a value of another type than expected."""
    found = _KINDS.get(type(value), "something else")
    if expected == "a whole number" and type(value) is float:
        found = str(value)
    return PodRejected(where, f"must be {expected}, not {found}")


def wrong_choice(where: str, values: tuple[str, ...], value: object) -> PodRejected:
    """Return the error for a value that is none of those allowed."""
    allowed = f"{', '.join(values[:-1])} or {values[-1]}"
    if type(value) is not str:
        return wrong_type(where, allowed, value)
    return PodRejected(where, f"must be {allowed}, not '{value[:80]}'")


def text_at(holder: Mapping[str, Any], key: str, where: str, default: str = "") -> str:
    """Return a string; ``default`` when absent."""
    value = holder.get(key)
    if type(value) is str:
        return value
    if value is None:
        return default
    raise wrong_type(f"{where}.{key}", "a string", value)


def number_at(holder: Mapping[str, Any], key: str, where: str) -> Optional[int]:
    """Return a whole number from 0 to ``LARGEST``; None when absent."""
    value = holder.get(key)
    if value is None:
        return None
    if type(value) is not int:
        raise wrong_type(f"{where}.{key}", "a whole number", value)
    if not 0 <= value <= LARGEST:
        raise PodRejected(f"{where}.{key}", f"must be from 0 to {LARGEST}")
    return value


def flag_at(holder: Mapping[str, Any], key: str, where: str) -> Optional[bool]:
    """Return a boolean; None when absent."""
    value = holder.get(key)
    if value is None or type(value) is bool:
        return value
    raise wrong_type(f"{where}.{key}", "a boolean", value)


def object_at(holder: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    """Return an object; an empty one when absent."""
    value = holder.get(key)
    if type(value) is dict:
        return value
    if value is None:
        return _EMPTY_OBJECT
    raise wrong_type(f"{where}.{key}", "an object", value)


def list_at(holder: Mapping[str, Any], key: str, where: str) -> list[Any]:
    """Return a list; an empty one when absent."""
    value = holder.get(key)
    if type(value) is list:
        return value
    if value is None:
        return _EMPTY_LIST
    raise wrong_type(f"{where}.{key}", "a list", value)


def objects_at(holder: Mapping[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    """Return a list of objects; an empty one when absent."""
    values = holder.get(key)
    if values is None:
        return _EMPTY_LIST
    if type(values) is not list:
        raise wrong_type(f"{where}.{key}", "a list", values)
    for index, value in enumerate(values):
        if type(value) is not dict:
            raise wrong_type(f"{where}.{key}[{index}]", "an object", value)
    return values


def texts_at(holder: Mapping[str, Any], key: str, where: str) -> list[str]:
    """Return a list of strings; an empty one when absent."""
    values = list_at(holder, key, where)
    for value in values:
        if type(value) is not str:
            raise wrong_type(f"{where}.{key}[{values.index(value)}]", "a string", value)
    return values


def text_map_at(holder: Mapping[str, Any], key: str, where: str) -> dict[str, str]:
    """Return an object whose values are all strings; an empty one when absent."""
    values = object_at(holder, key, where)
    for value in values.values():
        if type(value) is not str:
            name = next(name for name, found in values.items() if found is value)
            raise wrong_type(f"{where}.{key}['{name}']", "a string", value)
    return values


def check_texts(where: str, value: object, *, allow_nul: bool = False) -> None:
    """Refuse text that no file, argument or variable can carry, however deeply it is nested.

    ``managedFields`` is skipped: it is bookkeeping of the API server and can be large. Places are
    put together only for an error: a long key would stand in those of all that is below it.
    """
    pending: list[tuple[_Place, object]] = [((None, where), value)]
    while pending:
        place, item = pending.pop()
        if type(item) is str:
            _check_text(place, item, allow_nul)
        elif type(item) is list:
            pending += [((place, index), entry) for index, entry in enumerate(item)]
        elif type(item) is dict:
            for key, entry in item.items():
                _check_text((place, ": a key"), key, allow_nul)
                if key != "managedFields":
                    pending.append(((place, f".{key}"), entry))


def _check_text(place: _Place, text: str, allow_nul: bool) -> None:
    if "\0" in text and not allow_nul:
        raise PodRejected(_path(place), "must not contain a NUL character")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise PodRejected(_path(place), "is not valid Unicode (a lone surrogate)") from None


def _path(place: Optional[_Place]) -> str:
    parts: list[str] = []
    while place is not None:
        place, key = place
        parts.append(f"[{key}]" if type(key) is int else str(key))
    return "".join(reversed(parts))
