"""Read the text of a configuration file, YAML or TOML, as mappings and plain values."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from templates.common.errors import ConfigError, one_line
from templates.common.yaml_loader import UniqueKeys

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TOML_NAMES = (".toml", ".conf", ".cfg")


@contextmanager
def reading_file(path: str, where: str = "") -> Iterator[None]:
    """Raise errors of reading a file as one line, at the key ``where`` if that names the file."""
    try:
        yield
    except UnicodeDecodeError:
        reason = "is not UTF-8 text"
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or one_line(str(error))
    else:
        return
    raise ConfigError(where or path, f"{path}: {reason}" if where else reason) from None


_PLAIN = {  # tag -> (pattern, first characters)
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    "int": (r"[-+]?(0|[1-9][0-9]*)", list("-+0123456789")),
    "float": (r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
    "merge": (r"<<", ["<"]),
}


def _resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """Return PyYAML's table: first character -> the tags to try."""
    table: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for tag, (pattern, letters) in _PLAIN.items():
        for letter in letters:
            entry = (f"tag:yaml.org,2002:{tag}", re.compile(rf"(?:{pattern})\Z"))
            table.setdefault(letter, []).append(entry)
    return table


class _Yaml12Loader(UniqueKeys, yaml.SafeLoader):
    """Safe loader with the plain scalars of YAML 1.2.

    In YAML 1.1, which PyYAML reads, ``off`` is a boolean, ``010`` is eight and ``1:30`` is ninety.
    """

    yaml_implicit_resolvers = _resolvers()


def parse(text: str, name: str) -> Any:
    """Return the values of a file; its name, or else its content, decides on the format."""
    if name.endswith(TOML_NAMES):
        return _toml(text, name)
    try:
        raw = parse_yaml(text, name)
    except ConfigError:
        return _toml_instead(text, name)
    return _toml_instead(text, name) if isinstance(raw, str) else raw


def _toml_instead(text: str, name: str) -> Any:
    """Read as TOML what is no YAML mapping; if that fails, the error of YAML is the useful one."""
    try:
        return _toml(text, name)
    except ConfigError:
        return parse_yaml(text, name)


def parse_yaml(text: str, name: str) -> Any:
    """Return the values of a YAML file; an empty one is an empty mapping."""
    try:
        raw = yaml.load(text, Loader=_Yaml12Loader)  # noqa: S506 (it is a SafeLoader)
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
