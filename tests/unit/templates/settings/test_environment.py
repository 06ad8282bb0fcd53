"""Settings from a text and an environment: which one wins, and what a mistake is called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from templates.common.errors import ConfigError
from templates.settings.environment import SettingsLoader
from templates.settings.files import reading_file
from templates.settings.types import Count, Word


@dataclass(frozen=True)
class Section:
    """A section."""

    words: tuple[Word, ...] = ()
    """Some words."""
    count: Count = 1
    """A number."""


@dataclass(frozen=True)
class Everything:
    """A file."""

    name: Word = ""
    """A word."""
    flag: bool = False
    """A flag."""
    section: Section = field(default_factory=Section)
    """A section."""


def mistakes(settings: Everything) -> Iterator[tuple[str, str]]:
    if settings.name == "wrong":
        yield "name", "must not be wrong"


OVERLAY = SettingsLoader(Everything(), "PROGRAM_", mistakes)


@pytest.mark.parametrize(
    ("text", "variables", "expected"),
    [
        ("", {}, Everything()),
        ("name: a\nsection: {count: 3}", {}, Everything("a", section=Section(count=3))),
        ("name: a\nsection:", {"NAME": "b"}, Everything("b")),
        ("", {"SECTION_WORDS": " a,,b "}, Everything(section=Section(("a", "b")))),
        ("", {"SECTION_WORDS": ""}, Everything()),
        ("", {"FLAG": "true", "SECTION_COUNT": "7"}, Everything("", True, Section((), 7))),
        ("", {"NAME": "7"}, Everything("7")),
        (
            "section: {words: [a], count: 3}",
            {"SECTION_COUNT": "4"},
            Everything(section=Section(("a",), 4)),
        ),
        ("", {"UNKNOWN": "x"}, Everything()),
    ],
)
def test_the_environment_wins(
    text: str, variables: Mapping[str, str], expected: Everything
) -> None:
    environment = {f"PROGRAM_{name}": value for name, value in variables.items()}
    assert OVERLAY.load(text, "x.yaml", environment) == expected


@pytest.mark.parametrize(
    ("text", "path", "variables", "line"),
    [
        ("[]", "x.yaml", {}, "x.yaml: must be a mapping of sections, not a list"),
        ("name: wrong", "x.yaml", {}, "x.yaml: name: must not be wrong"),
        ("", "", {"PROGRAM_NAME": "wrong"}, "environment: name: must not be wrong"),
        ("", "", {"PROGRAM_FLAG": "["}, "PROGRAM_FLAG: line 1: "),
        ("", "", {"PROGRAM_SECTION_COUNT": "0"}, "environment: section.count: must be from 1 "),
        ("nmae: x", "x.yaml", {}, "x.yaml: nmae: unknown key (did you mean name?)"),
    ],
)
def test_a_mistake_is_one_line_that_says_where(
    text: str, path: str, variables: Mapping[str, str], line: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        OVERLAY.load(text, path, variables)
    assert str(caught.value).startswith(line)
    assert str(caught.value).isprintable()


def test_what_was_read_is_not_changed() -> None:
    before = OVERLAY.load("section: {count: 3}", "x", {"PROGRAM_SECTION_COUNT": "4"})
    assert before.section.count == 4
    assert OVERLAY.load("", "", {}).section.count == 1


def test_the_keys_and_their_variables() -> None:
    names = [key.name for key in OVERLAY.keys]
    assert names == ["name", "flag", "section.words", "section.count"]
    assert OVERLAY.variable("section.count") == "PROGRAM_SECTION_COUNT"


@pytest.mark.parametrize("where", ["", "pools[0].build"])
def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path, where: str) -> None:
    (tmp_path / "noise").write_bytes(b"\xff")
    told = []
    for name in ("nothing", "noise", "a\0b"):
        path = tmp_path / name
        with pytest.raises(ConfigError) as caught, reading_file(str(path), where):
            path.read_text(encoding="utf-8")
        told.append(str(caught.value))
    start = f"{where}: {tmp_path}" if where else str(tmp_path)
    assert told[:2] == [
        f"{start}/nothing: No such file or directory",
        f"{start}/noise: is not UTF-8 text",
    ]
    assert "null byte" in told[2]
    assert "\n" not in told[2]
