"""The HTCondor site of scripts/condor-site, as tests use it.

    with running(folder) as site:
        print(site.login("condor_status"))
        site.kill("n1")

The user's files are in ``site.home``, under the same path here and on the login node; on the other
machines, too, unless the site is one without a shared file system. ``kill``, ``start`` and the
others are in ``scripts/lib/condor_site.py``; ``restore`` makes good whatever they have done.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Optional

from scripts.lib.condor_site import MASTER, CondorSite
from scripts.lib.slurm_files import CENTRE, CENTRE_PORT, USER, USER_ID
from scripts.lib.slurm_machines import Machine, until
from scripts.lib.slurm_site import OUTSIDE

REPO = Path(__file__).resolve().parent.parent
SCRIPT = REPO / "scripts" / "condor-site"
PATIENCE_S = 60.0

__all__ = ["CENTRE", "CENTRE_PORT", "USER", "USER_ID", "RunningSite", "running", "until"]


class RunningSite(CondorSite):
    """One that runs."""

    def login(self, *command: str) -> str:
        """What a command of the user's says, on the login node; it has to succeed."""
        return self.do("login", *command, user=USER)

    def admin(self, *command: str) -> str:
        """The same for the administrator of the access point."""
        return self.do("login", *command)

    def program(self, arguments: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        """Python with our packages as the user on the login node, until it is told to end.

        The process passes signals on, and cannot be killed without it.
        """
        with log.open("ab") as out:
            return subprocess.Popen(
                self.python(arguments), stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    def restore(self) -> None:
        """No jobs, all machines and programs running, all slots idle."""
        for name, first in self.facts["machines"].items():
            if not Machine(*first).is_alive:
                self.start(name)
            self.plug(name)
            for program in () if name == OUTSIDE else (MASTER, *self.programs(name)):
                if not self.machine(name).processes(program):
                    self.start(f"{program}@{name}")
                self.thaw(f"{program}@{name}")
        free = sorted(f"slot1@{name}.site.test Unclaimed" for name in self.nodes)

        def quiet() -> bool:
            self.run("login", ["condor_vacate_job", "-fast", "-all"])
            self.run("login", ["condor_rm", "-all"])
            if self.run("login", ["condor_q", "-allusers", "-af", "ClusterId"]).stdout.strip():
                return False
            slots = self.run("login", ["condor_status", "-af", "Name", "State"]).stdout
            return sorted(slots.splitlines()) == free

        until(quiet, PATIENCE_S, "a site without jobs")


@contextlib.contextmanager
def running(
    folder: Path,
    nodes: int = 2,
    shared: bool = True,
    settings: Optional[Mapping[str, str]] = None,
) -> Iterator[RunningSite]:
    """A site that keeps its files in this folder; ``settings`` change its configuration."""
    changes = [f"--set={key}={value}" for key, value in (settings or {}).items()]
    _script("up", str(folder), f"--nodes={nodes}", *changes, *([] if shared else ["--not-shared"]))
    try:
        yield RunningSite(folder)
    finally:
        _script("down", str(folder))


def _script(*words: str) -> None:
    process = subprocess.Popen(
        [str(SCRIPT), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        told, _ = process.communicate()
    except BaseException:
        process.send_signal(signal.SIGTERM)
        raise
    assert process.returncode == 0, told
