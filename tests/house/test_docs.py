"""Documents about configuration files and the dataclasses behind them name the same keys."""

from __future__ import annotations

import dataclasses
import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from submitter.cli.config_file import keys as submitter_keys
from submitter.cli.config_file import load
from templates.common.errors import ConfigError
from templates.settings.reference import Key
from templates.site import build_config
from tests.e2e.row import RUNTIMES
from tests.e2e.rows import ROWS
from tests.support.sources import REPO

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


# --- docs/submitter.md ----------------------------------------------------------------------------

GUIDE = (REPO / "docs" / "submitter.md").read_text(encoding="utf-8")


def default_of(key: Key) -> str:
    default = list(key.default) if isinstance(key.default, tuple) else key.default
    if key.required or default == "":
        return "required" if key.required else "empty"
    return f"`{default}`" if isinstance(default, str) else f"`{json.dumps(default)}`"


def test_the_guide_lists_every_key_with_its_type_default_and_meaning() -> None:
    lines = [line for line in GUIDE.split("\n## Keys\n")[1].splitlines() if line.startswith("| `")]
    listed = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    expected = [
        [f"`{key.name}`", key.type, default_of(key), key.doc.replace("``", "`")]
        for key in submitter_keys()
    ]
    assert sorted(listed) == sorted(expected)


def test_the_mistakes_that_the_guide_shows_are_told_so() -> None:
    pool = "pools: [{name: p, directory: /x, %s}]"
    nats = 'nats: {servers: ["wss://x"]}'
    for wrong in ("backend: hots", "policy: {cpus: 1}"):
        with pytest.raises(ConfigError) as caught:
            load(f"{nats}\n{pool % wrong}\n", "submitter.yaml")
        assert str(caught.value) in GUIDE


def test_the_example_of_the_guide_loads(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)
    (tmp_path / "build.yaml").write_text("runtime: {name: apptainer}")
    settings = load(textwrap.dedent(example), "example", tmp_path)
    assert [pool.name for pool in settings.pools] == ["mypool"]


# --- limits -------------------------------------------------------------------------------------


@pytest.mark.parametrize("site", RUNTIMES)
def test_what_is_not_as_on_a_real_node_is_a_limit_that_is_told(site: str) -> None:
    limits = " ".join((REPO / "docs" / "limits.md").read_text(encoding="utf-8").split())
    noted = {words for row in ROWS.values() for words in row.limits(site).values()}
    assert {words for words in noted if words not in limits} == set()


def test_the_tests_that_pages_name_are_there() -> None:
    named = {
        (page.name, path)
        for page in (REPO / "docs").glob("*.md")
        for path in re.findall(r"`(tests/[\w./]+)`", page.read_text(encoding="utf-8"))
    }
    assert len(named) > 20
    assert [name for name in sorted(named) if not (REPO / name[1]).exists()] == []
