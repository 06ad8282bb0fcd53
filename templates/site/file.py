"""Read a BuildConfig from a file, YAML or TOML, and write the sample of such a file."""

from __future__ import annotations

from templates.common.errors import ConfigError
from templates.settings import reference
from templates.settings.files import parse
from templates.settings.reference import Key
from templates.settings.rules import kind_of
from templates.site import legacy
from templates.site.build_config import BuildConfig
from templates.site.schema import check_sections

__all__ = ["Key", "keys", "load", "sample"]


def load(text: str, name: str) -> BuildConfig:
    """Read a configuration file; ``name`` is its name in errors and decides on the format."""
    raw = parse(text, name)
    if not isinstance(raw, dict):
        raise ConfigError(name, f"must be a mapping of sections, not {kind_of(raw)}")
    current, origins = legacy.translate(raw, name)
    written = {key: value for key, value in current.items() if value is not None}
    return check_sections(written, name, origins)


def keys() -> tuple[Key, ...]:
    """Return every key that a file may have, in the order of the dataclasses."""
    return tuple(reference.keys(BuildConfig()))


def sample() -> str:
    """Return a YAML file that holds every key with its default, explained in comments."""
    title = "How scripts are built for this site. Every key is here with its default."
    return reference.sample(BuildConfig(), title)
