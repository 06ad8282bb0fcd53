"""docs/slurm.md names the options, states, errors and old keys that there are."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import yaml

from submitter.backends.slurm.errors import SUBMIT_ERRORS
from submitter.backends.slurm.flags import NEVER
from submitter.backends.slurm.options import Options
from submitter.backends.slurm.options import load as load_options
from submitter.backends.slurm.states import STATES
from submitter.cli import config_file, slurm_import
from submitter.cli.config_file import load
from templates.settings.reference import keys
from templates.site import file as build_config_file
from templates.site.legacy import REFUSED, UNDERSTOOD
from tests.house.test_docs import default_of
from tests.support.sources import REPO

TEXT = (REPO / "docs" / "slurm.md").read_text(encoding="utf-8")


def rows(title: str) -> list[list[str]]:
    """The cells of the table below a title, without its head."""
    part = TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def test_options() -> None:
    expected = [
        [f"`{key.name}`", key.type, default_of(key), key.doc.replace("``", "`")]
        for key in keys(Options())
    ]
    assert rows("Options") == expected


def test_states() -> None:
    expected = [
        [f"`{name}`", state.phase, state.reason or "-", state.meaning or "-"]
        for name, state in STATES.items()
    ]
    assert rows("States") == expected


def test_errors_and_flags() -> None:
    named = {row[0] for row in rows("What sbatch complains of")}
    assert {text for text, _ in SUBMIT_ERRORS} <= named
    assert [name for name, why in NEVER.items() if f"| `--{name}` | {why} |" not in TEXT] == []


def test_old_keys() -> None:
    named = set(re.findall(r"`([A-Za-z_]+)`", TEXT.split("\n## Keys of the old plugin\n")[1]))
    old = {key for key in (*UNDERSTOOD, *REFUSED) if "." not in key}
    assert old | set(slurm_import.VARIABLES) <= named


def test_the_example_loads(tmp_path: Path) -> None:
    example, *others = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    assert [next(iter(yaml.safe_load(one))) for one in others] == ["apiVersion", "build"]
    (pool,) = load(textwrap.dedent(example), "example", tmp_path).pools
    assert [one.name for one in load_options(pool.options, "p").flavors] == ["gpu", "cpu"]


def test_what_an_old_key_is_said_to_be_now_is_a_key() -> None:
    files = (config_file.keys, build_config_file.keys)
    known = {key.name for every in files for key in every()}
    known |= {f"pools[].options.{key.name}" for key in keys(Options())}
    named = {found[1] for why in REFUSED.values() if (found := re.match(r"is now ([^, ]+)", why))}
    assert len(named) > 10
    assert named <= known
