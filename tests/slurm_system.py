"""The whole system with its submitter at a Slurm site: on the login node, as an ordinary user.

    with running(folder) as site, system_at(site, folder / "system") as system:
        pod = system.run("hostname")
        assert system.ended(pod)[0]["exitCode"] == 0

The plugin and NATS run here, the submitter reaches them by the one way out that the login node has.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from tests.slurm_site import CENTRE, CENTRE_PORT, USER_ID, SlurmSite
from tests.system import System, request_of, running

IMAGE = "/srv/images/busybox_1.36.sif"
TIMING = {"poll_s": 1, "spool_s": 1}


class SlurmSystem(System):
    """One whose pool is a Slurm site's."""

    def __init__(self, folder: Path, slurm: SlurmSite, **options: Any) -> None:
        self.slurm = slurm
        super().__init__(folder, **options)
        self.site = self._home

    @property
    def _home(self) -> Path:
        """What the submitter has at the site; another system there has another one."""
        return self.slurm.home / self.folder.name

    def _add_submitter(self, number: int, pools: Sequence[str], settings: dict[str, Any]) -> None:
        self._home.mkdir(exist_ok=True)
        shutil.copy(self.nats.ca_file, self._home / "ca.pem")
        entries = [
            {
                "name": pool,
                "directory": str(self._home / pool),
                "backend": "slurm",
                "build": {"runtime": {"name": "apptainer"}},
                "timing": TIMING,
                **settings,
            }
            for pool in pools
        ]
        server = f"wss://{CENTRE}:{CENTRE_PORT}"
        nats = {"servers": [server], "ca_file": str(self._home / "ca.pem")}
        file = self._home / f"submitter{number}.yaml"
        file.write_text(yaml.safe_dump({"nats": nats, "pools": entries}))
        for path in (self._home, *self._home.iterdir()):
            os.chown(path, USER_ID, USER_ID)
        command = self.slurm.python(["-m", "submitter", "--config", str(file)])
        self._add(f"submitter{number}", command)

    def start_all(self) -> None:
        self.slurm.lead_to(self.nats.websocket_port)
        super().start_all()


@contextlib.contextmanager
def system_at(slurm: SlurmSite, folder: Path, **options: Any) -> Iterator[SlurmSystem]:
    """A system, up and ready, with its submitter at this site."""
    folder.mkdir(parents=True, exist_ok=True)
    kind: Any = partial(SlurmSystem, slurm=slurm)
    with running(folder, kind=kind, **options) as system:
        assert isinstance(system, SlurmSystem)
        yield system


def pod_of(*commands: str, **spec: Any) -> dict[str, Any]:
    """A create request as ``request_of`` makes it, with an image that the site has."""
    request = request_of(*commands, **spec)
    for container in request["pod"]["spec"]["containers"]:
        container["image"] = IMAGE
    return request
