"""What the Slurm sites and the HTCondor sites of tests have alike: a user on a login node."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from scripts.lib.slurm.files import USER
from scripts.lib.slurm.machines import Machine
from scripts.lib.slurm.site import Site

REPO = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0


class LoginNode(Site):
    """A site, seen by its user; what tests do to it can be made good."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._unplugged: set[str] = set()

    def login(self, *command: str) -> str:
        """What a command of the user's says, on the login node; it has to succeed."""
        return self.do("login", *command, user=USER)

    def program(self, arguments: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        """Python with our packages as the user on the login node, until it is told to end.

        The process passes signals on, and cannot be killed without it.
        """
        with log.open("ab") as out:
            return subprocess.Popen(
                self.python(arguments), stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    def unplug(self, name: str) -> None:
        self._unplugged.add(name)
        super().unplug(name)

    def plug(self, name: str) -> None:
        super().plug(name)
        self._unplugged.discard(name)

    def everything(self, name: str) -> Sequence[str]:
        """All programs that a machine should run."""
        return self.programs(name)

    def restore_parts(self) -> None:
        """All machines and programs run, all cables are in their places."""
        for name, first in self.facts["machines"].items():
            if not Machine(*first).is_alive:
                self.start(name)
            if name in self._unplugged:
                self.plug(name)
            for program in self.everything(name):
                if not self.machine(name).processes(program):
                    self.start(f"{program}@{name}")
                self.thaw(f"{program}@{name}")


def run_script(name: str, *words: str) -> None:
    """Run scripts/NAME; who interrupts us ends it in its own time."""
    process = subprocess.Popen(
        [str(REPO / "scripts" / name), *words],
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
