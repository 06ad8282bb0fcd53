"""What every batch system has to do alike, on a real Slurm, by submitters on its login node."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import pytest

from tests.nats_server import NatsServer
from tests.processes import kill_left
from tests.slurm_site import CENTRE, CENTRE_PORT, USER_ID, SlurmSite
from tests.submitter import test_backend_conformance as conformance
from tests.submitter.conftest import Start
from tests.submitter.rig import Centre, Submitter
from tests.submitter.test_backend_conformance import *  # noqa: F403 - its tests are run here

conformance.BACKENDS["slurm"] = {"backend": "slurm"}
conformance.ONE_AT_A_TIME["slurm"] = {"options": {"flags": ["--partition=limited"]}}

pytestmark = [  # type: ignore[assignment] # in place of the one that was imported
    pytest.mark.slurm,
    pytest.mark.parametrize("backend", ["slurm"]),
]


class AtTheSite(Submitter):
    """A submitter on the login node, as the site's user."""

    def __init__(self, nats: NatsServer, folder: Path, site: SlurmSite, **pool: Any) -> None:
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


@pytest.fixture
def tmp_path(site: SlurmSite) -> Path:
    """A folder that jobs can write into, too."""
    folder = site.home / uuid.uuid4().hex[:8]
    folder.mkdir()
    os.chown(folder, USER_ID, USER_ID)
    return folder


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory, the_site: SlurmSite) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path_factory.mktemp("nats")).start()
    the_site.lead_to(server.port)
    yield server
    server.stop()


@pytest.fixture
def start(nats: NatsServer, centre: Centre, site: SlurmSite, tmp_path: Path) -> Iterator[Start]:
    started: list[AtTheSite] = []

    def start_one(**pool: Any) -> Submitter:
        for folder in [path for path in tmp_path.rglob("*") if path.is_dir()]:
            os.chown(folder, USER_ID, USER_ID)
        one = AtTheSite(nats, tmp_path, site, **pool)
        started.append(one)
        return one.until_ready(centre)

    yield start_one
    for one in started:
        process: Optional[subprocess.Popen[bytes]] = one.process
        if process is not None:
            one.stop(signal.SIGKILL)
    site.restore()
    kill_left(tmp_path)


@pytest.fixture
def centre(nats: NatsServer) -> Iterator[Centre]:
    one = Centre(nats)
    yield one
    one.close()


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """Tests make folders here that jobs at the site write into."""
    before = os.umask(0)
    yield
    os.umask(before)
