"""The whole system with its submitter at an HTCondor site: at its access point.

    with running(folder) as site, system_at(site, folder / "system") as system:
        pod = system.run("hostname")
        assert system.ended(pod)[0]["exitCode"] == 0

At a computing element the submitter is on the machine that it is used from.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.sites.htcondor.site import RunningSite
from tests.support.site_system import SiteSystem, at_site


class CondorSystem(SiteSystem):
    """One whose pool is an HTCondor site's; its jobs use no containers."""

    defaults = {"backend": "htcondor", "build": {"runtime": {"name": "host"}}}

    @property
    def condor(self) -> RunningSite:
        """Its site."""
        assert isinstance(self.at, RunningSite)
        return self.at


@contextlib.contextmanager
def system_at(site: RunningSite, folder: Path, **options: Any) -> Iterator[CondorSystem]:
    """A system, up and ready, with its submitter at this site."""
    with at_site(CondorSystem, site, folder, **options) as system:
        assert isinstance(system, CondorSystem)
        yield system
