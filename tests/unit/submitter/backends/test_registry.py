"""The registry of batch systems, and what it spares."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from submitter.backends import registry
from submitter.backends.base import Backend
from submitter.config.settings import Pool
from templates.common.errors import ConfigError

SUBMITTER = Path(registry.__file__).resolve().parent.parent


def test_settings_load_no_batch_system() -> None:
    program = "import sys, submitter.cli.config_file; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    places = {place.partition(":")[0] for place in registry.BACKENDS.values()}
    assert places & set(done.stdout.split()) == set()


def test_no_batch_system_is_told_by_its_name() -> None:
    """What is special about one stands in its class."""
    names = "|".join(registry.BACKENDS)
    compared = re.compile(rf'\.backend (==|!=|in|not in) |(==|!=) "({names})"')
    found = [
        f"{path.name}: {line.strip()}"
        for path in sorted(SUBMITTER.rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if compared.search(line) and "runtime" not in line and "BACKENDS" not in line
    ]
    assert found == []


@pytest.mark.parametrize(
    ("name", "options", "runs_here", "shared"),
    [
        ("host", {}, True, False),
        ("podman", {}, True, False),
        ("kubernetes", {}, False, False),
        ("slurm", {}, False, True),
        ("htcondor", {}, False, True),
        ("htcondor", {"shared": False}, False, False),
        ("nonesuch", {}, False, True),
    ],
)
def test_what_is_special(
    name: str, options: dict[str, object], runs_here: bool, shared: bool
) -> None:
    pool = Pool(name="p", directory="/p", backend=name, options=options)
    found = registry.load_class_or_base(pool)
    assert issubclass(found, Backend)
    assert (found.runs_here, found.needs_shared_directory(pool)) == (runs_here, shared)


def test_a_batch_system_that_is_not_known() -> None:
    with pytest.raises(ConfigError, match="must be one of host, htcondor, kubernetes"):
        registry.load_class(Pool(name="p", directory="/p", backend="nonesuch"))
