"""What README.md and CONTRIBUTING.md tell a stranger to type, and where they send them, exists."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.support.sources import REPO

README = (REPO / "README.md").read_text(encoding="utf-8")
TEXT = README + (REPO / "CONTRIBUTING.md").read_text(encoding="utf-8")
OURS = ("scripts/", ".ci/", "./")


def shell_lines() -> list[str]:
    blocks = re.findall(r"^```(?:sh|bash|console)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    lines = [line.strip().removeprefix("$ ") for block in blocks for line in block.splitlines()]
    return [line.removeprefix('eval "$(').removesuffix(')"') for line in lines]


def our_commands() -> list[str]:
    """The first word of each shell line that names a file of ours, and those named in the text."""
    firsts = {line.split()[0] for line in shell_lines() if line.startswith(OURS)}
    named = re.findall(r"`((?:scripts|\.ci)/[\w./-]+)", TEXT)
    return sorted(firsts | {name for name in named if not name.endswith(("/", ".sh"))})


def named_paths() -> list[str]:
    """Everything in backticks that looks like a place in the repository."""
    found = re.findall(r"`([\w.-]+(?:/[\w.*-]+)*/?)`", TEXT)
    tops = {path.name for path in REPO.iterdir()}
    return sorted({name for name in found if "/" in name and name.split("/")[0] in tops})


def links() -> list[str]:
    found = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", TEXT)
    return sorted({link for link in found if "://" not in link})


def test_it_shows_commands() -> None:
    assert "scripts/test" in our_commands()


@pytest.mark.parametrize("command", our_commands())
def test_a_command_exists_and_can_be_run(command: str) -> None:
    assert os.access(REPO / command, os.X_OK)


@pytest.mark.parametrize("path", [*named_paths(), *links()])
def test_a_path_exists(path: str) -> None:
    assert list(REPO.glob(path.rstrip("/"))), path


def test_the_arguments_of_shown_commands_exist() -> None:
    words = [word for line in shell_lines() for word in line.split()[1:]]
    no_files = ("/", "<", "~", "job/")
    files = [w for w in words if "/" in w and not w.startswith(no_files) and "://" not in w]
    assert [name for name in files if not Path(REPO / name).exists()] == []


def test_the_map_names_every_folder() -> None:
    folders = {p.name for p in REPO.iterdir() if p.is_dir() and not p.name.startswith(".")}
    # What tools leave behind, and nobody keeps.
    folders -= {"build", "dist", "__pycache__"} | {f for f in folders if f.endswith(".egg-info")}
    assert {name for name in folders if f"`{name}/" not in README} == set()
