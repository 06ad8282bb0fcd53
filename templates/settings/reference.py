"""Keys of settings dataclasses, for people: a list of them, and a sample file."""

from __future__ import annotations

import ast
import collections.abc
import dataclasses
import inspect
import json
import textwrap
from collections.abc import Iterator
from functools import lru_cache
from typing import (
    Annotated,
    Any,
    NamedTuple,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from templates.settings.types import Choice, Kind, Whole


class Key(NamedTuple):
    """One key of a configuration file, for people."""

    name: str  # dotted; [] stands for every item of a list, <name> for a name that the site chooses
    type: str
    default: object
    doc: str
    required: bool


class _Part(NamedTuple):
    """One field of a dataclass, and its value."""

    name: str
    hint: Any
    value: Any
    doc: str
    required: bool
    elsewhere: str  # where its keys are explained; empty: here

    @property
    def is_section(self) -> bool:
        return dataclasses.is_dataclass(self.hint) and not self.elsewhere

    @property
    def type(self) -> str:
        return self.elsewhere or _type(self.hint)

    @property
    def plain(self) -> Any:
        return {} if self.elsewhere else self.value

    def below(self) -> Iterator[Key]:
        """Yield the keys of each of its items."""
        for item in get_args(self.hint):
            if dataclasses.is_dataclass(item) and isinstance(item, type):
                mark = "[]" if get_origin(self.hint) is tuple else ".<name>"
                yield from keys(item(), self.name + mark)


def keys(values: Any, prefix: str = "") -> Iterator[Key]:
    """Yield every key below a dataclass's value, in order; the value has the defaults."""
    for part in _parts(values):
        name = f"{prefix}.{part.name}" if prefix else part.name
        if part.is_section:
            yield from keys(part.value, name)
        else:
            yield Key(name, part.type, part.plain, part.doc, part.required)
            yield from part._replace(name=name).below()


def sample(values: Any, title: str) -> str:
    """Return a YAML file that holds every key with its value, explained in comments."""
    lines = [f"# {title}"]
    for part in _parts(values):
        lines += ["", f"# {part.doc}", *_nested(part, "")]
    return "\n".join(lines) + "\n"


def _lines(values: Any, indent: str) -> list[str]:
    """Return the keys of one section; JSON's way of writing values is YAML's, too."""
    lines: list[str] = []
    for part in _parts(values):
        lines += _comment(part.doc, indent)
        if part.is_section or _holds_sections(part):
            lines += _nested(part, indent)
            continue
        required = ", required" if part.required else ""
        lines += [*_comment(f"({part.type}{required})", indent), *_entry(part, indent)]
        for key in part.below():
            required = ", required" if key.required else ""
            lines += _comment(f"{key.name}: {key.doc} ({key.type}{required})", indent)
    return lines


def _nested(part: _Part, indent: str) -> list[str]:
    """Return a section, or a list of sections."""
    if part.is_section:
        return [f"{indent}{part.name}:", *_lines(part.value, indent + "  ")]
    lines = [f"{indent}{part.name}:"]
    for item in part.value:
        below = _lines(item, indent + "    ")
        first = next(i for i, line in enumerate(below) if not line.lstrip().startswith("#"))
        below[first] = f"{indent}  - {below[first].lstrip()}"
        lines += below
    return lines


def _holds_sections(part: _Part) -> bool:
    return isinstance(part.value, tuple) and any(map(dataclasses.is_dataclass, part.value))


def _comment(text: str, indent: str) -> list[str]:
    mark = f"{indent}# "
    return textwrap.wrap(text, 100, initial_indent=mark, subsequent_indent=mark)


def _entry(part: _Part, indent: str) -> list[str]:
    if isinstance(part.value, tuple) and part.value:
        items = [f"{indent}  - {json.dumps(item)}" for item in part.value]
        return [f"{indent}{part.name}:", *items]
    return [f"{indent}{part.name}: {json.dumps(part.plain)}"]


def _parts(values: Any) -> Iterator[_Part]:
    docs = _docs(type(values))  # type: ignore[arg-type] # mypy doubts that classes can be hashed
    hints = get_type_hints(type(values), include_extras=True)
    for field in dataclasses.fields(values):
        yield _Part(
            field.name,
            hints[field.name],
            getattr(values, field.name),
            docs[field.name],
            field.metadata.get("required", False),
            field.metadata.get("elsewhere", ""),
        )


def _type(hint: Any) -> str:
    """Return the type of a key in words."""
    inner = get_args(hint)
    origin = get_origin(hint)
    if origin is Union:
        return f"{_type(inner[0])}, or null"
    if origin is tuple:
        return f"list: {_type(inner[0])}"
    if origin is collections.abc.Mapping:
        return f"mapping: {_type(inner[0])} to {_type(inner[1])}"
    if origin is Annotated:
        return _rule(inner[1])
    names = {str: Kind.TEXT.value, bool: "true or false", object: "anything"}
    return names.get(hint, "keys as below")


def _rule(rule: object) -> str:
    if isinstance(rule, Choice):
        return "one of " + ", ".join(rule.values)
    if isinstance(rule, Whole):
        return f"whole number, {rule.minimum} or more"
    return str(rule.value) if isinstance(rule, Kind) else ""


@lru_cache(maxsize=64)
def _docs(part: type[Any]) -> dict[str, str]:
    """Return field -> the text under it in the dataclass, or in one that it inherits from."""
    docs: dict[str, str] = {}
    for one in filter(dataclasses.is_dataclass, reversed(part.__mro__)):
        definition: Any = ast.parse(inspect.getsource(one)).body[0]
        pairs: list[tuple[Any, Any]] = list(zip(definition.body, definition.body[1:]))
        docs.update(
            (f.target.id, " ".join(text.value.value.split()))
            for f, text in pairs
            if _is_doc(f, text)
        )
    return docs


def _is_doc(field: ast.stmt, text: ast.stmt) -> bool:
    return isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
