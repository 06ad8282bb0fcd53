"""A BuildConfig from a mapping: strictly from a file, patiently from the wire; and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from templates.settings.schema import Form, plain
from templates.site.build_config import BuildConfig

_FROM_FILE = Form(BuildConfig(), strict=True)
_FROM_WIRE = Form(BuildConfig(), strict=False)


def checked(raw: object, name: str, origins: Mapping[str, str]) -> BuildConfig:
    """The configuration that a file's sections say; ``origins``: key -> its name in the file."""
    config: BuildConfig = _FROM_FILE.load(raw, name, origins)
    return config


def from_json(mapping: Mapping[str, Any]) -> BuildConfig:
    """Read what ``to_json`` wrote, perhaps in another version of us: unknown keys are ignored."""
    config: BuildConfig = _FROM_WIRE.load(mapping, "BuildConfig")
    return config


def to_json(config: BuildConfig) -> dict[str, Any]:
    """Write the configuration as JSON values, so that ``from_json`` gives an equal one back."""
    mapping: dict[str, Any] = plain(config)
    return mapping
