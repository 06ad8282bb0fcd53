"""Submitters on the login node of a real site, for the tests of ``conformance.py``.

A module that runs those at its site imports all of this, too, and has a fixture ``the_site`` (it is
up) and ``site`` (it is as it was before the test).
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.lib.slurm.files import CENTRE, CENTRE_PORT, USER_ID
from tests.support.login_node import LoginNode
from tests.support.nats_server import NatsServer
from tests.support.processes import kill_left
from tests.unit.submitter.conftest import Start, centre
from tests.unit.submitter.rig import Centre, Submitter, kill

__all__ = ["AtTheSite", "centre", "home", "nats", "open_umask", "options", "start", "tmp_path"]


class AtTheSite(Submitter):
    """A submitter on the login node, as the site's user."""

    def __init__(self, nats: NatsServer, folder: Path, site: LoginNode, **pool: Any) -> None:
        super().__init__(nats, folder, **pool)
        self.site = site
        config = json.loads(self.config.read_text())
        config["nats"] = {"servers": [f"nats://{CENTRE}:{CENTRE_PORT}"]}
        self.config.write_text(json.dumps(config))
        os.chown(self.config, USER_ID, USER_ID)

    def start(self) -> AtTheSite:
        self.process = self.site.program(
            ["-m", "submitter", "--config", str(self.config)], self.log
        )
        return self


def own_folder(parent: Path) -> Path:
    """A new folder of the user's."""
    folder = parent / uuid.uuid4().hex[:8]
    folder.mkdir()
    os.chown(folder, USER_ID, USER_ID)
    return folder


@pytest.fixture
def tmp_path(site: LoginNode) -> Path:
    """A folder that jobs can write into, too."""
    return own_folder(site.home)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where the pool is."""
    return tmp_path


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory, the_site: LoginNode) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path_factory.mktemp("nats")).start()
    the_site.lead_to(server.port)
    yield server
    server.stop()


@pytest.fixture
def options() -> dict[str, Any]:
    """Options of all pools, besides those of a test."""
    return {}


@pytest.fixture
def start(
    nats: NatsServer,
    centre: Centre,
    site: LoginNode,
    tmp_path: Path,
    home: Path,
    options: dict[str, Any],
) -> Iterator[Start]:
    started: list[AtTheSite] = []

    def start_one(**pool: Any) -> Submitter:
        for folder in [path for path in tmp_path.rglob("*") if path.is_dir()]:
            os.chown(folder, USER_ID, USER_ID)
        pool["options"] = {**options, **pool.get("options", {})}
        one = AtTheSite(nats, home, site, **pool)
        started.append(one)
        return one.until_ready(centre)

    yield start_one
    kill(started)
    site.restore()
    kill_left(home)


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """Tests make folders here that jobs at the site write into."""
    before = os.umask(0)
    yield
    os.umask(before)
