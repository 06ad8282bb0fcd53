"""Pods that make much of little: each is translated or refused in one line, within little memory.

Counted are bytes. The time limit of ``hostile_child.py`` only ends what would not end.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import pytest

from tests.support.hostile_pods import AT_THE_LIMIT, HOSTILE

pytestmark = pytest.mark.security

MIB = 1024 * 1024
# Of 64 MiB, too: what has few large parts, of which no count is exceeded.
LARGE = (
    *("objects", "long numbers", "a surrogate beside a text", "a long value in an error"),
    *("a file of brackets", "a secret file", "files in deep folders"),
)


def translated(runtime: str, size: int, names: Iterable[str]) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "tests.support.hostile_child", runtime, str(size), *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(found: list[dict[str, Any]], names: Iterable[str], mib: int) -> None:
    assert [one["name"] for one in found] == [*names]
    for one in found:
        assert one["answer"].startswith(("job of ", "refused: ")), one
        assert one["answer"].isprintable(), one
        assert len(one["answer"]) < 800, one
        assert one["bytes"] < mib * MIB, one


def test_a_pod_of_a_mebibyte_takes_little() -> None:
    check(translated("apptainer", MIB, HOSTILE), HOSTILE, 100)


@pytest.mark.parametrize("runtime", ["apptainer", "podman", "host", "kubernetes"])
def test_a_pod_that_stays_within_its_budget_takes_little(runtime: str) -> None:
    names = [name for name in AT_THE_LIMIT if runtime != "kubernetes" or "annot" not in name]
    found = translated(runtime, MIB, names)
    check(found, names, 100)
    assert [one for one in found if not one["answer"].startswith("job of ")] == []


def test_a_request_of_64_mebibytes_takes_little() -> None:
    check(translated("apptainer", 64 * MIB, LARGE), LARGE, 600)


def test_brackets_in_texts_are_no_values() -> None:
    (found,) = translated("apptainer", 16 * MIB, ["a file of brackets"])
    assert found["answer"].startswith("job of ")
