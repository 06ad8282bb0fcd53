"""The whole system with its submitter at a site: on the login node, as an ordinary user.

The plugin and NATS run here, the submitter reaches them by the one way out that the site has. What
a batch system has besides is in ``slurm_system.py`` and ``condor_system.py``.
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

from scripts.lib.slurm.files import CENTRE, CENTRE_PORT, USER_ID
from tests.support.login_node import LoginNode
from tests.support.system import System, running

TIMING = {"poll_s": 1, "spool_s": 1}


class SiteSystem(System):
    """One whose pool is a site's."""

    defaults: dict[str, Any] = {}
    """Of the pool's settings, besides its name and directory."""

    def __init__(self, folder: Path, at: LoginNode, **options: Any) -> None:
        self.at = at
        super().__init__(folder, **options)
        self.site = self._home

    @property
    def _home(self) -> Path:
        """What the submitter has at the site; another system there has another one."""
        return self.at.home / self.folder.name

    def _add_submitter(self, number: int, pools: Sequence[str], settings: dict[str, Any]) -> None:
        self._home.mkdir(exist_ok=True)
        shutil.copy(self.nats.ca_file, self._home / "ca.pem")
        own = {**self.defaults, "timing": TIMING, **settings}
        own["policy"] = {"namespaces": ["*"], **own.get("policy", {})}
        entries = [{"name": pool, "directory": str(self._home / pool), **own} for pool in pools]
        server = f"wss://{CENTRE}:{CENTRE_PORT}"
        nats = {"servers": [server], "ca_file": str(self._home / "ca.pem")}
        file = self._home / f"submitter{number}.yaml"
        file.write_text(yaml.safe_dump({"nats": nats, "pools": entries}))
        for path in (self._home, *self._home.iterdir()):
            os.chown(path, USER_ID, USER_ID)
        command = self.at.python(["-m", "submitter", "--config", str(file)])
        self._add(f"submitter{number}", command)

    def start_all(self) -> None:
        self.at.lead_to(self.nats.websocket_port)
        super().start_all()


@contextlib.contextmanager
def at_site(
    kind: type[SiteSystem], site: LoginNode, folder: Path, **options: Any
) -> Iterator[SiteSystem]:
    """A system of this kind, up and ready, with its submitter at this site."""
    folder.mkdir(parents=True, exist_ok=True)
    make: Any = partial(kind, at=site)
    with running(folder, kind=make, **options) as system:
        assert isinstance(system, SiteSystem)
        yield system
