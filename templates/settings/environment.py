"""Settings from a YAML file, and variables of the environment that override it.

For each key there is a variable: with the prefix ``INTERLINK_`` that of ``nats.ca_file`` is
INTERLINK_NATS_CA_FILE. A program hands in the text and the environment; nothing is read here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Callable

from templates.common.errors import ConfigError
from templates.settings import reference
from templates.settings.files import parse_yaml
from templates.settings.reference import Key
from templates.settings.rules import kind_of
from templates.settings.schema import SettingsSchema

FindErrors = Callable[[Any], Iterator[tuple[str, str]]]  # of settings: key and reason

WITHOUT_A_FILE = "environment"  # the name of the settings in error messages then


class SettingsLoader:
    """Reader of one program's settings; ``base`` has the values of absent keys."""

    def __init__(self, base: Any, prefix: str, find_errors: FindErrors) -> None:
        self._schema = SettingsSchema(base, strict=True)
        self._prefix = prefix
        self._find_errors = find_errors
        self.keys: tuple[Key, ...] = tuple(reference.keys(base))
        """Every key, in the order of the dataclasses."""

    def variable(self, key: str) -> str:
        """Return the variable that stands for a dotted key."""
        return self._prefix + key.upper().replace(".", "_")

    def load(self, text: str, path: str, environment: Mapping[str, str]) -> Any:
        """Return the settings; without a file both text and path are empty."""
        raw = parse_yaml(text, path)
        if not isinstance(raw, dict):
            raise ConfigError(path, f"must be a mapping of sections, not {kind_of(raw)}")
        written = {key: value for key, value in raw.items() if value is not None}
        self._override(written, environment)
        name = path or WITHOUT_A_FILE
        settings = self._schema.load(written, name)
        for key, reason in self._find_errors(settings):
            raise ConfigError(f"{name}: {key}", reason)
        return settings

    def _override(self, written: dict[str, Any], environment: Mapping[str, str]) -> None:
        """Override the values of the file with those of the environment."""
        for key in self.keys:
            name = self.variable(key.name)
            if name not in environment:
                continue
            *sections, last = key.name.split(".")
            holder = written
            for section in sections:
                below = holder.get(section)
                holder[section] = dict(below) if isinstance(below, dict) else {}
                holder = holder[section]
            holder[last] = _value(environment[name], key, name)


def _value(text: str, key: Key, name: str) -> Any:
    if isinstance(key.default, tuple):
        return [item.strip() for item in text.split(",") if item.strip()]
    return text if isinstance(key.default, str) else parse_yaml(text, name)
