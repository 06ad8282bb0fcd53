"""Reading settings into the dataclasses that list their keys: schemas follow from the annotations.

A file is read strictly: an unknown key is a mistake of its author. What comes over the wire may be
of a newer version, so unknown keys are ignored there. Either way the first mistake becomes one
ConfigError line that names it.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import difflib
from collections.abc import Iterator, Mapping
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
from templates.settings.rules import apply, kind_of
from templates.settings.types import Kind

_NONE: Mapping[str, str] = {}


class Form:
    """How one kind of settings is read; ``base`` says what is not given."""

    def __init__(self, base: Any, *, strict: bool) -> None:
        self._section = _Section(base, RAISE if strict else EXCLUDE)

    def load(self, raw: object, name: str, origins: Mapping[str, str] = _NONE) -> Any:
        """The dataclass that the mapping says; ``origins``: key -> its name in an older file."""
        try:
            return self._section.deserialize(raw)
        except ValidationError as error:
            (path, what), *others = _mistakes(error.messages)
            if others:
                what = f"{what} (and {len(others)} more)"
            where = f"{name}: {_original(path, origins)}" if path else name
            raise ConfigError(where, what) from None


def plain(value: Any) -> Any:
    """The dataclass as JSON values, so that a ``Form`` of it gives an equal one back."""
    if dataclasses.is_dataclass(value):
        return {part.name: plain(getattr(value, part.name)) for part in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, collections.abc.Mapping):
        return {key: plain(item) for key, item in value.items()}
    return value


# --- schemas ------------------------------------------------------------------------------------

_WORDS: Any = {"null": "must not be empty", "required": "is missing"}


class _Value(fields.Field[Any]):
    """One text, number or truth value, of exactly that type: nothing is converted."""

    def __init__(self, rule: object, **options: Any) -> None:
        super().__init__(error_messages=_WORDS, **options)
        self.rule = rule

    def _deserialize(self, value: Any, attr: Any, data: Any, **_: Any) -> Any:
        return apply(self.rule, value)


class _Items(fields.List[Any]):
    """A list and nothing that merely can be iterated over."""

    def _deserialize(self, value: Any, attr: Any, data: Any, **options: Any) -> list[Any]:
        if not isinstance(value, list):
            raise ValidationError(f"must be a list, not {kind_of(value)}")
        return super()._deserialize(value, attr, data, **options)


class _Table(fields.Dict):
    """A mapping of names that the site chooses."""

    def _deserialize(self, value: Any, attr: Any, data: Any, **options: Any) -> dict[Any, Any]:
        if not isinstance(value, collections.abc.Mapping):
            raise ValidationError(f"must be a mapping, not {kind_of(value)}")
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
    """A mapping whose keys are the fields of a dataclass; what is not given is as in ``base``."""

    def __init__(self, base: Any, unknown: Any, **options: Any) -> None:
        super().__init__(_schema(base, unknown), unknown=unknown, error_messages=_WORDS, **options)
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
    """Puts mistakes into the order of the file's reader: unknown keys first, each explained."""

    def handle_error(self, error: ValidationError, data: Any, **_: Any) -> None:
        """Marshmallow's place for changing the messages of a mapping."""
        messages: Any = error.messages
        unknown = [key for key in data if key not in self.fields and key in messages]
        known = {key: what for key, what in messages.items() if key not in unknown}
        error.messages = {**{str(key): [self._unknown(str(key))] for key in unknown}, **known}

    def _unknown(self, key: str) -> str:
        close = difflib.get_close_matches(key, self.fields, n=1)
        known = f"did you mean {close[0]}?" if close else f"known here: {', '.join(self.fields)}"
        return f"unknown key ({known})"


def _schema(base: Any, unknown: str) -> type[Schema]:
    hints = get_type_hints(type(base), include_extras=True)
    known = {}
    for part in dataclasses.fields(base):
        required = part.metadata.get("required", False)
        default = getattr(base, part.name)
        known[part.name] = _field(hints[part.name], unknown, default, required=required)
    return _Keys.from_dict(known, name=type(base).__name__)


def _field(hint: Any, unknown: str, base: Any = None, **options: Any) -> fields.Field[Any]:
    """The marshmallow field for the type of a dataclass's field."""
    inner = get_args(hint)
    origin = get_origin(hint)
    if origin is Union:
        return _field(inner[0], unknown, allow_none=True, **options)
    if origin is tuple:
        return _Items(_field(inner[0], unknown), error_messages=_WORDS, **options)
    if origin is collections.abc.Mapping:
        keys, values = (_field(part, unknown) for part in inner)
        return _Table(keys=keys, values=values, error_messages=_WORDS, **options)
    if dataclasses.is_dataclass(hint):
        made: Any = hint
        return _Section(base or made(), unknown, **options)
    rules = {str: Kind.TEXT, bool: bool, object: object}
    return _Value(inner[1] if origin is Annotated else rules[hint], **options)


# --- mistakes -----------------------------------------------------------------------------------


def _mistakes(messages: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every (dotted key, what is wrong) in marshmallow's tree of messages."""
    if isinstance(messages, list):
        yield from ((path, what) for what in messages)
        return
    for key, below in messages.items():
        step = f"[{key}]" if isinstance(key, int) else f".{key}" if path else str(key)
        yield from _mistakes(below, path + step)


def _original(path: str, origins: Mapping[str, str]) -> str:
    """The key as the file has it, if it is written there in an older form."""
    key, bracket, index = path.partition("[")
    return origins.get(key, key) + bracket + index
