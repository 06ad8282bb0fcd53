"""A BuildConfig from a file, YAML or TOML, and the sample of such a file."""

from __future__ import annotations

import ast
import collections.abc
import dataclasses
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Iterator
from typing import (
    Annotated,
    Any,
    NamedTuple,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import yaml

from templates import legacy_config
from templates.build_config import BuildConfig, Choice, Kind, Whole
from templates.build_config_rules import kind_of
from templates.build_config_schema import checked
from templates.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TOML_NAMES = (".toml", ".conf", ".cfg")


def load(text: str, name: str) -> BuildConfig:
    """Read a configuration file; ``name`` is how messages call it and decides on the format."""
    raw = _parse(text, name)
    if not isinstance(raw, dict):
        raise ConfigError(name, f"must be a mapping of sections, not {kind_of(raw)}")
    current, origins = legacy_config.translate(raw, name)
    written = {key: value for key, value in current.items() if value is not None}
    return checked(written, name, origins)


# --- text to mappings ---------------------------------------------------------------------------


_PLAIN = {  # tag -> (what it looks like, its first characters)
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    "int": (r"[-+]?(0|[1-9][0-9]*)", list("-+0123456789")),
    "float": (r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
    "merge": (r"<<", ["<"]),
}


def _resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """PyYAML's table: first character -> the tags to try."""
    table: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for tag, (pattern, letters) in _PLAIN.items():
        for letter in letters:
            entry = (f"tag:yaml.org,2002:{tag}", re.compile(rf"(?:{pattern})\Z"))
            table.setdefault(letter, []).append(entry)
    return table


class _Loader(yaml.SafeLoader):
    """Safe YAML with the plain scalars of YAML 1.2, which refuses a key that stands there twice.

    In YAML 1.1, which PyYAML reads, ``off`` is a boolean, ``010`` is eight and ``1:30`` is ninety.
    """

    yaml_implicit_resolvers = _resolvers()

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Let the last of two equal keys not win in silence."""
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    problem = f"the key {key.value} stands there twice"
                    raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
                seen.add(key.value)
        return node


def _parse(text: str, name: str) -> Any:
    if name.endswith(TOML_NAMES):
        return _toml(text, name)
    try:
        raw = _yaml(text, name)
    except ConfigError:
        return _toml_instead(text, name)
    return _toml_instead(text, name) if isinstance(raw, str) else raw


def _toml_instead(text: str, name: str) -> Any:
    """What is no YAML mapping may be TOML; if not, the useful complaint is the one about YAML."""
    try:
        return _toml(text, name)
    except ConfigError:
        return _yaml(text, name)


def _yaml(text: str, name: str) -> Any:
    try:
        raw = yaml.load(text, Loader=_Loader)  # noqa: S506 (it is a SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}: " if mark else ""
        raise ConfigError(name, f"{place}{error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(name, f"not YAML: {error}") from None
    return {} if raw is None else raw


def _toml(text: str, name: str) -> Any:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(name, f"not TOML: {error}") from None


# --- the keys and their sample ------------------------------------------------------------------


class Key(NamedTuple):
    """One key of the configuration, for people."""

    name: str  # dotted; [] stands for every item of a list, <name> for a name that the site chooses
    type: str
    default: object
    doc: str
    required: bool


def keys() -> tuple[Key, ...]:
    """Every key that a file may have, in the order of the dataclasses."""
    config = BuildConfig()
    sections = dataclasses.fields(config)
    return tuple(key for part in sections for key in _keys(getattr(config, part.name), part.name))


def sample() -> str:
    """A YAML file that holds every key with its default, explained in comments."""
    lines = ["# How scripts are built for this site. Every key is here with its default."]
    docs = _docs(BuildConfig)
    for key in keys():
        section, name = key.name.split(".", 1)
        if section in docs:
            lines += ["", f"# {docs.pop(section)}", f"{section}:"]
        if "." in name:
            required = ", required" if key.required else ""
            lines += _comment(f"{name}: {key.doc} ({key.type}{required})")
        else:
            lines += [*_comment(key.doc), *_comment(f"({key.type})"), *_entry(name, key.default)]
    return "\n".join(lines) + "\n"


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, 100, initial_indent="  # ", subsequent_indent="  # ")


def _entry(name: str, value: object) -> list[str]:
    """One key below its section; JSON's way of writing values is YAML's, too."""
    if isinstance(value, tuple) and value:
        return [f"  {name}:", *(f"    - {json.dumps(item)}" for item in value)]
    return [f"  {name}: {json.dumps(value)}"]


def _keys(values: Any, prefix: str) -> Iterator[Key]:
    docs = _docs(type(values))
    hints = get_type_hints(type(values), include_extras=True)
    for part in dataclasses.fields(values):
        name = f"{prefix}.{part.name}"
        required = part.metadata.get("required", False)
        hint = hints[part.name]
        yield Key(name, _type(hint), getattr(values, part.name), docs[part.name], required)
        for item in get_args(hint):
            if dataclasses.is_dataclass(item) and isinstance(item, type):
                yield from _keys(item(), name + ("[]" if get_origin(hint) is tuple else ".<name>"))


def _type(hint: Any) -> str:
    """The type of a key in words."""
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
    return {str: Kind.TEXT.value, bool: "true or false"}.get(hint, "keys as below")


def _rule(rule: object) -> str:
    if isinstance(rule, Choice):
        return "one of " + ", ".join(rule.values)
    if isinstance(rule, Whole):
        return f"whole number, {rule.minimum} or more"
    return str(rule.value) if isinstance(rule, Kind) else ""


def _docs(part: type[Any]) -> dict[str, str]:
    """Field -> the text that stands under it in the dataclass."""
    definition: Any = ast.parse(inspect.getsource(part)).body[0]
    pairs: list[tuple[Any, Any]] = list(zip(definition.body, definition.body[1:]))
    return {field.target.id: text.value.value for field, text in pairs if _is_doc(field, text)}


def _is_doc(field: ast.stmt, text: ast.stmt) -> bool:
    return isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
