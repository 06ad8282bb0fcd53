"""Fixtures for tests that run job scripts."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import kill_left
from tests.support.script_runner import Site

_MARKS = {
    "apptainer": "apptainer",
    "singularity": "apptainer",
    "host-alice": "apptainer",
    "podman": "podman",
}


def _params(*runtimes: str) -> list[object]:
    return [
        pytest.param(name, marks=getattr(pytest.mark, _MARKS[name])) if name in _MARKS else name
        for name in runtimes
    ]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the site's user can reach (pytest's own are below a private one)."""
    path = Path(tempfile.mkdtemp(prefix="interlink-test-", dir="/var/tmp"))
    path.chmod(0o755)
    yield path
    kill_left(path)  # of a test that has failed
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(params=_params("host", "apptainer", "podman"))
def site(request: pytest.FixtureRequest, folder: Path) -> Site:
    """Each runtime in turn."""
    return Site(request.param, folder)


@pytest.fixture(params=_params("apptainer", "podman"))
def container_site(request: pytest.FixtureRequest, folder: Path) -> Site:
    """The runtimes that have containers."""
    return Site(request.param, folder)


@pytest.fixture(params=_params("host", "host-alice", "apptainer", "podman"))
def every_site(request: pytest.FixtureRequest, folder: Path) -> Site:
    """The same, and host without privileges."""
    return Site(request.param, folder)


@pytest.fixture(params=_params("host", "host-alice", "apptainer", "singularity", "podman"))
def any_site(request: pytest.FixtureRequest, folder: Path) -> Site:
    """The same by every name: Singularity is the older one of Apptainer."""
    return Site(request.param, folder)
