"""Every test here needs a podman host; each worker of pytest-xdist has one."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sites.podman.host import AtTheHost, PodmanHost, running
from tests.support.nats_server import NatsServer
from tests.support.processes import kill_left
from tests.unit.submitter.conftest import *  # noqa: F403 - its fixtures are used here
from tests.unit.submitter.conftest import Start
from tests.unit.submitter.rig import Centre, Submitter, kill


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.podman)


@pytest.fixture(scope="session")
def host() -> Iterator[PodmanHost]:
    folder = Path(tempfile.mkdtemp(prefix="interlink-podman-", dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        with running(folder) as one:
            yield one
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def tmp_path(host: PodmanHost) -> Path:
    """A folder that jobs can write into, too."""
    folder = host.folder / uuid.uuid4().hex[:8]
    folder.mkdir()
    host.own(folder)
    return folder


@pytest.fixture
def start(nats: NatsServer, centre: Centre, host: PodmanHost, tmp_path: Path) -> Iterator[Start]:
    """Starts submitters of one pool; ends them, and whatever their jobs have left."""
    started: list[AtTheHost] = []

    def start_one(**pool: object) -> Submitter:
        host.own(*(path for path in tmp_path.iterdir() if path.is_dir() and path.name != "pool"))
        one = AtTheHost(nats, tmp_path, host, **pool)
        started.append(one)
        return one.until_ready(centre)

    yield start_one
    kill(started)
    kill_left(tmp_path)
    host.try_to("podman", "pod", "rm", "--all", "--force", "--time", "0")
    host.try_to("podman", "rm", "--all", "--force", "--time", "0")


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """Tests make folders here that jobs at the site write into."""
    before = os.umask(0)
    yield
    os.umask(before)
