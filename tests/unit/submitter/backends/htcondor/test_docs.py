"""docs/htcondor.md names the options, annotations, states, reasons and errors that there are."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from submitter.backends.htcondor.errors import SUBMIT_ERRORS
from submitter.backends.htcondor.options import Options
from submitter.backends.htcondor.options import load as load_options
from submitter.backends.htcondor.request import ANNOTATIONS
from submitter.backends.htcondor.states import FAILED, HOLDS, STATES
from submitter.backends.htcondor.submit_file import NEVER
from submitter.cli.config_file import load
from templates.settings.reference import keys
from tests.house.test_docs import default_of
from tests.support.sources import REPO

TEXT = (REPO / "docs" / "htcondor.md").read_text(encoding="utf-8")


def rows(title: str) -> list[list[str]]:
    """The cells of the tables below a title, without their heads."""
    part = TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    rules = [n for n, line in enumerate(lines) if set(line) <= set("|-")]
    return [row for n, row in enumerate(cells) if n not in rules and n + 1 not in rules]


def test_options() -> None:
    expected = [
        [f"`{key.name}`", key.type, default_of(key), key.doc.replace("``", "`")]
        for key in keys(Options())
    ]
    assert rows("Options") == expected


def test_annotations_and_commands() -> None:
    said = {**ANNOTATIONS, **NEVER}
    assert rows("Annotations") == [[f"`{name}`", words] for name, words in said.items()]


def test_states() -> None:
    expected = [[str(n), f"`{s.name}`", s.phase, s.meaning] for n, s in STATES.items()]
    assert rows("States") == expected


def test_holds() -> None:
    expected = [
        [str(code), hold.action, hold.reason if hold.action == FAILED else "-", hold.meaning]
        for code, hold in HOLDS.items()
    ]
    assert rows("Why jobs are held") == expected


def test_errors() -> None:
    named = [row[0] for row in rows("What condor_submit complains of")]
    assert named == [text for text, _ in SUBMIT_ERRORS]


def examples() -> list[str]:
    return list(map(textwrap.dedent, re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)))


def test_the_example_loads(tmp_path: Path) -> None:
    (pool,) = load(examples()[0], "example", tmp_path).pools
    assert load_options(pool.options, "p").requirements == "HasCvmfs"


def test_the_example_of_an_element_loads(tmp_path: Path) -> None:
    (pool,) = load(examples()[2], "example", tmp_path).pools
    options = load_options(pool.options, "p")
    assert options.remote.schedd == "ce.example.org"
    assert options.tokens.audience == options.remote.collector
