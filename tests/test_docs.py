"""docs/build-config.md and the dataclasses of templates/build_config.py name the same keys."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from templates import build_config
from tests.test_layering import REPO

DOCUMENT = REPO / "docs" / "build-config.md"


def sections() -> dict[str, type]:
    """The sections of a BuildConfig and the dataclass behind each."""
    config = build_config.BuildConfig()
    values = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    return {name: type(v) for name, v in values.items() if dataclasses.is_dataclass(v)}


def keys() -> Iterator[str]:
    for name, cls in sections().items():
        yield from (f"{name}.{field.name}" for field in dataclasses.fields(cls))


def documented() -> set[str]:
    """What stands in backticks as ``section.key`` with one of our sections."""
    text = DOCUMENT.read_text(encoding="utf-8")
    names = "|".join(sections())
    return set(re.findall(rf"`((?:{names})\.[a-z][a-z0-9_]*)`", text))


def test_every_key_is_documented() -> None:
    assert set(keys()) - documented() == set()


def test_every_documented_key_exists() -> None:
    assert documented() - set(keys()) == set()


def test_every_part_of_a_build_config_is_a_section() -> None:
    # A plain value at the top would escape the two tests above.
    names = {field.name for field in dataclasses.fields(build_config.BuildConfig)}
    assert names == sections().keys()
