"""The programs of a Slurm site: as whom each runs, and how to tell that it does."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from scripts.lib.slurm.files import USER
from scripts.lib.slurm.machines import Machine, Trouble, until

PATIENCE_S = 60.0
SUBMITTER = "submitter/submitter"  # in the user's home, where there is one that the site starts
START_S = 1.0  # after which it is told from a program that has ended already


class Program(NamedTuple):
    """One that runs for ever, on the machine that it belongs to."""

    name: str
    user: str
    command: str
    port: int = 0  # TCP
    file: str = ""  # of a socket
    home: str = ""  # the one machine that has it, if there is only one

    def is_ready(self, machine: Machine) -> bool:
        """Return whether it takes requests there."""
        if self.port:
            return machine.listens(self.port)
        if not self.file:
            return bool(machine.processes(self.name))
        with socket.socket(socket.AF_UNIX) as end:
            return end.connect_ex(str(machine.root / self.file)) == 0

    def start(self, machine: Machine, name: str, logs: Path, there: str = "/var/log/slurm") -> None:
        """Start it on a machine of this name, which has ``logs`` there; wait until it is ready."""
        if machine.processes(self.name):
            raise Trouble(f"{self.name} runs on {name} already")
        output = f"{self.name}.{name}.out"
        line = f"exec setsid --fork {self.command} >>{there}/{output} 2>&1 </dev/null"
        subprocess.run(machine.enter(["bash", "-c", line], self.user), check=True)
        patience = time.monotonic() + START_S

        def ready() -> bool:
            if time.monotonic() > patience and not machine.processes(self.name):
                raise Trouble(f"{self.name} on {name} has ended: see {logs}/{self.name}*")
            return self.is_ready(machine)

        until(ready, PATIENCE_S, f"{self.name} on {name}: see {logs}")


PROGRAMS = {
    program.name: program
    for program in (
        Program(
            "munged",
            "munge",
            "munged --foreground --force --pid-file=/run/munge/pid --seed-file=/run/munge/seed",
            file="run/munge/munge.socket.2",
        ),
        Program(
            "mariadbd",
            "mysql",
            "mariadbd --defaults-file=/etc/slurm/mariadb.cnf",
            file="run/mysqld/mysqld.sock",
            home="ctl",
        ),
        Program(
            "slurmdbd",
            "slurm",
            "env LD_LIBRARY_PATH=/opt/libmariadb slurmdbd",
            port=6819,
            home="ctl",
        ),
        Program("slurmctld", "slurm", "slurmctld", port=6817, home="ctl"),
        Program("slurmd", "root", "slurmd", port=6818),
        # The site's own mirror of Docker Hub, whose name it has there (files.hosts).
        Program(
            "docker-registry",
            "root",
            "docker-registry serve /srv/registry/config.yml",
            port=443,
            home="login",
        ),
        Program(
            "submitter",
            USER,
            f"/home/{USER}/{SUBMITTER} --config /home/{USER}/{SUBMITTER}.yaml",
            home="login",
        ),
    )
}
