"""The HTCondor site of scripts/condor-site, as tests use it.

    with running(folder) as site:
        print(site.login("condor_status"))
        site.kill("n1")

The user's files are in ``site.home``, under the same path here and on the login node; on the other
machines, too, unless the site is one without a shared file system. ``kill``, ``start`` and the
others are in ``scripts/lib/condor/site.py``; ``restore`` makes good whatever they have done.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Optional

from scripts.lib.condor.site import MASTER, CondorSite
from scripts.lib.slurm.files import CENTRE, CENTRE_PORT, USER, USER_ID
from scripts.lib.slurm.machines import until
from tests.support.login_node import PATIENCE_S, LoginNode, run_script

__all__ = ["CENTRE", "CENTRE_PORT", "USER", "USER_ID", "RunningSite", "running", "until"]


# Empties the queue, also of jobs that wait to be fetched; names the machines once it is empty.
EMPTY = """\
queue=$(condor_q -allusers -af ClusterId) || exit
if [ -n "$queue" ]; then
    { condor_vacate_job -fast -all; condor_rm -all; condor_rm -forcex -all; } >&2
    exit
fi
exec condor_status -af Machine
"""


class RunningSite(LoginNode, CondorSite):
    """One that runs."""

    def admin(self, *command: str) -> str:
        """What a command of the access point's administrator says."""
        return self.do("login", *command)

    def end_at_login(self, program: str) -> None:
        """SIGKILL for all of them on the login node; their parent need not notice."""
        for pid in self.machine("login").processes(program):
            os.kill(pid, signal.SIGKILL)

    @contextlib.contextmanager
    def without_schedd(self) -> Iterator[None]:
        """It dies; condor_master, which would bring it back at once, stands still."""
        self.freeze(f"{MASTER}@login")
        self.end_at_login("condor_schedd")
        try:
            yield
        finally:
            self.thaw(f"{MASTER}@login")

    def restore(self) -> None:
        """No jobs, all machines and programs running."""
        self.restore_parts()
        nodes = set(self.nodes)

        def quiet() -> bool:
            """No job is in the queue, and the collector knows all nodes."""
            known = self.run("login", ["bash", "-c", EMPTY])
            return {name.partition(".")[0] for name in known.stdout.split()} == nodes

        until(quiet, PATIENCE_S, "a site without jobs")


@contextlib.contextmanager
def running(
    folder: Path,
    nodes: int = 2,
    kind: Sequence[str] = (),
    settings: Optional[Mapping[str, str]] = None,
) -> Iterator[RunningSite]:
    """A site that keeps its files in this folder; ``settings`` change its configuration.

    ``kind``: --not-shared, or --element with a folder.
    """
    changes = [f"--set={key}={value}" for key, value in (settings or {}).items()]
    options = [f"--nodes={nodes}", *changes, *kind]
    run_script("condor-site", "up", str(folder), *options)
    try:
        yield RunningSite(folder)
    finally:
        run_script("condor-site", "down", str(folder))
