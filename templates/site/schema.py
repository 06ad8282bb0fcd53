"""Read a BuildConfig from a mapping, strictly if it is a file's; and write it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from templates.settings.schema import SettingsSchema, plain
from templates.site.build_config import BuildConfig

_FROM_FILE = SettingsSchema(BuildConfig(), strict=True)
_FROM_MESSAGE = SettingsSchema(BuildConfig(), strict=False)


def check_sections(raw: object, name: str, origins: Mapping[str, str]) -> BuildConfig:
    """Return the configuration in a file's sections; ``origins``: key -> its name in the file."""
    config: BuildConfig = _FROM_FILE.load(raw, name, origins)
    return config


def from_json(mapping: Mapping[str, Any]) -> BuildConfig:
    """Read what ``to_json`` wrote, perhaps of another version: unknown keys are ignored."""
    config: BuildConfig = _FROM_MESSAGE.load(mapping, "BuildConfig")
    return config


def to_json(config: BuildConfig) -> dict[str, Any]:
    """Write the configuration as JSON values, so that ``from_json`` reads an equal one back."""
    mapping: dict[str, Any] = plain(config)
    return mapping
