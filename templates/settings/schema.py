"""Read settings into the dataclasses that list their keys: schemas follow from the annotations.

A file is read strictly: an unknown key is an error of its author. A message may be of a newer
version, so unknown keys are ignored there. Either way the first error becomes one ConfigError line
that names its key.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import difflib
from collections.abc import Collection, Iterator, Mapping
from typing import (
    Annotated,
    Any,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from marshmallow import EXCLUDE, RAISE, Schema, ValidationError, fields

from templates.common.errors import ConfigError
from templates.settings.rules import check, kind_of
from templates.settings.types import Kind

_NONE: Mapping[str, str] = {}


class SettingsSchema:
    """Reader of one kind of settings; ``base`` has the values of absent keys."""

    def __init__(self, base: Any, *, strict: bool) -> None:
        self._section = _Section(base, RAISE if strict else EXCLUDE)

    def load(self, raw: object, name: str, origins: Mapping[str, str] = _NONE) -> Any:
        """Return the dataclass in a mapping; ``origins``: key -> its name in an older file."""
        try:
            return self._section.deserialize(raw)
        except ValidationError as error:
            (path, reason), *others = _errors(error.messages)
            if others:
                reason = f"{reason} (and {len(others)} more)"
            field = f"{name}: {_original(path, origins)}" if path else name
            raise ConfigError(field, reason) from None


def plain(value: Any) -> Any:
    """Return the dataclass as JSON values; a ``SettingsSchema`` of it reads an equal one back."""
    if dataclasses.is_dataclass(value):
        return {part.name: plain(getattr(value, part.name)) for part in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, collections.abc.Mapping):
        return {key: plain(item) for key, item in value.items()}
    return value


# --- schemas ------------------------------------------------------------------------------------

MOST_ENTRIES = 2000  # of a list or mapping: each costs time where a message of a site is read
_MESSAGES: Any = {"null": "must not be empty", "required": "is missing"}


def _check_length(value: Collection[Any]) -> None:
    if len(value) > MOST_ENTRIES:
        raise ValidationError(f"must have at most {MOST_ENTRIES} entries, not {len(value)}")


class _Value(fields.Field[Any]):
    """One text, number or boolean, of exactly that type: nothing is converted."""

    def __init__(self, rule: object, **options: Any) -> None:
        super().__init__(error_messages=_MESSAGES, **options)
        self.rule = rule

    def _deserialize(self, value: Any, attr: Any, data: Any, **_: Any) -> Any:
        return check(self.rule, value)


class _Items(fields.List[Any]):
    """A list, and no other iterable."""

    def _deserialize(self, value: Any, attr: Any, data: Any, **options: Any) -> list[Any]:
        if not isinstance(value, list):
            raise ValidationError(f"must be a list, not {kind_of(value)}")
        _check_length(value)
        return super()._deserialize(value, attr, data, **options)


class _Table(fields.Dict):
    """Mapping of names that the site chooses."""

    def _deserialize(self, value: Any, attr: Any, data: Any, **options: Any) -> dict[Any, Any]:
        if not isinstance(value, collections.abc.Mapping):
            raise ValidationError(f"must be a mapping, not {kind_of(value)}")
        _check_length(value)
        parent: Any = super()  # has no types
        try:
            loaded: dict[Any, Any] = parent._deserialize(value, attr, data, **options)
        except ValidationError as error:
            wrong: Any = error.messages
            raise ValidationError(
                {str(k): v.get("key") or v["value"] for k, v in wrong.items()}
            ) from None
        return loaded


class _Section(fields.Nested):
    """Mapping whose keys are the fields of a dataclass; absent ones are as in ``base``."""

    def __init__(self, base: Any, unknown: Any, **options: Any) -> None:
        super().__init__(
            _schema(base, unknown), unknown=unknown, error_messages=_MESSAGES, **options
        )
        self.base = base

    def _deserialize(
        self, value: Any, attr: Any, data: Any, partial: Any = None, **options: Any
    ) -> Any:
        if isinstance(value, type(self.base)):
            return value  # read before, from a file of its own
        if not isinstance(value, collections.abc.Mapping):
            raise ValidationError(f"must be a mapping, not {kind_of(value)}")
        loaded = super()._deserialize(value, attr, data, **options)
        given = {key: tuple(v) if isinstance(v, list) else v for key, v in loaded.items()}
        return dataclasses.replace(self.base, **given)


class _Keys(Schema):
    """Schema that reports unknown keys first, each explained."""

    def handle_error(self, error: ValidationError, data: Any, **_: Any) -> None:
        """Change the messages of a mapping, as marshmallow allows here."""
        messages: Any = error.messages
        unknown = [key for key in data if key not in self.fields and key in messages]
        others = {key: reason for key, reason in messages.items() if key not in unknown}
        error.messages = {**{str(key): [self._unknown(str(key))] for key in unknown}, **others}

    def _unknown(self, key: str) -> str:
        close = difflib.get_close_matches(key, self.fields, n=1)
        hint = f"did you mean {close[0]}?" if close else f"known here: {', '.join(self.fields)}"
        return f"unknown key ({hint})"


def _schema(base: Any, unknown: str) -> type[Schema]:
    hints = get_type_hints(type(base), include_extras=True)
    found = {}
    for part in dataclasses.fields(base):
        required = part.metadata.get("required", False)
        default = getattr(base, part.name)
        found[part.name] = _field(hints[part.name], unknown, default, required=required)
    return _Keys.from_dict(found, name=type(base).__name__)


def _field(hint: Any, unknown: str, base: Any = None, **options: Any) -> fields.Field[Any]:
    """Return the marshmallow field for the type of a dataclass's field."""
    inner = get_args(hint)
    origin = get_origin(hint)
    if origin is Union:
        return _field(inner[0], unknown, allow_none=True, **options)
    if origin is tuple:
        return _Items(_field(inner[0], unknown), error_messages=_MESSAGES, **options)
    if origin is collections.abc.Mapping:
        keys, values = (_field(part, unknown) for part in inner)
        return _Table(keys=keys, values=values, error_messages=_MESSAGES, **options)
    if dataclasses.is_dataclass(hint):
        made: Any = hint
        return _Section(base or made(), unknown, **options)
    rules = {str: Kind.TEXT, bool: bool, object: object}
    return _Value(inner[1] if origin is Annotated else rules[hint], **options)


# --- errors -----------------------------------------------------------------------------------


def _errors(messages: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every (dotted key, reason) in marshmallow's tree of messages."""
    if isinstance(messages, list):
        yield from ((path, reason) for reason in messages)
        return
    for key, below in messages.items():
        step = f"[{key}]" if isinstance(key, int) else f".{key}" if path else str(key)
        yield from _errors(below, path + step)


def _original(path: str, origins: Mapping[str, str]) -> str:
    """Return the key as it stands in the file, if that has an older form of it."""
    key, bracket, index = path.partition("[")
    return origins.get(key, key) + bracket + index
