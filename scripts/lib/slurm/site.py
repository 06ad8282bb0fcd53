"""A Slurm site on this machine: controller, accounting, compute nodes and a login node.

Each machine of it is a set of name spaces (``slurm_machines.py``). All are below one process, so
that the site is gone when that one is. What it writes is in one folder. ``slurm_up.py`` starts it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from scripts.lib.slurm import files
from scripts.lib.slurm.machines import (
    Machine,
    Trouble,
    connect,
    connect_two,
    network,
    remove_group,
    start_machine,
    until,
)
from scripts.lib.slurm.programs import PATIENCE_S, PROGRAMS, SUBMITTER

REPOSITORY = "/interlink-nats"  # as the machines see it
OUTSIDE = "outside"  # what the login node's second cable leads to


class Site:
    """The site of one folder; several objects and processes may speak for it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()
        self.file = self.directory / "site.json"

    # --- what there is --------------------------------------------------------------------------

    @property
    def facts(self) -> dict[str, Any]:
        """Return the content of site.json."""
        try:
            found: dict[str, Any] = json.loads(self.file.read_text())
        except FileNotFoundError:
            raise Trouble(f"{self.directory}: no site is here") from None
        return found

    @property
    def nodes(self) -> list[str]:
        found: list[str] = self.facts["nodes"]
        return found

    @property
    def building(self) -> Machine:
        """The process that all others are below."""
        return Machine(*self.facts["site"])

    @property
    def home(self) -> Path:
        """The user's home directory, under the same path here and on every machine of the site."""
        return self.directory / "home" / files.USER

    @property
    def certificates(self) -> Path:
        """The certificates of all that its machines trust; what is added to it counts at once."""
        return self.directory / "etc" / "ca-certificates.crt"

    def machine(self, name: str) -> Machine:
        """One machine that runs."""
        machines = self.facts["machines"]
        if name not in machines:
            raise Trouble(f"no machine is called {name}: {' '.join(machines)}")
        found = Machine(*machines[name])
        if not found.is_alive:
            raise Trouble(f"{name} does not run")
        return found

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Changes come one after the other."""
        with (self.directory / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def note(self, **changes: Any) -> None:
        """Write into site.json."""
        facts = json.loads(self.file.read_text()) if self.file.exists() else {}
        temporary = self.file.with_suffix(".new")
        temporary.write_text(json.dumps({**facts, **changes}, indent=1) + "\n")
        temporary.rename(self.file)

    # --- commands -------------------------------------------------------------------------------

    def command(self, machine: str, command: Sequence[str], user: str = "root") -> list[str]:
        """Return the command to run here so that the given one runs on a machine of the site."""
        directory = f"/home/{user}" if user == files.USER else "/"
        return self.machine(machine).enter(command, user, directory)

    def python(self, arguments: Sequence[str]) -> list[str]:
        """Return the command that runs our packages, as the user on the login node."""
        python = ["env", f"PYTHONPATH={REPOSITORY}", self.facts["python"], "-P"]
        return self.command("login", [*python, *arguments], files.USER)

    def run(
        self, machine: str, command: Sequence[str], user: str = "root", seconds: float = PATIENCE_S
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a machine and wait for its end."""
        return subprocess.run(
            self.command(machine, command, user),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )

    def do(self, machine: str, *command: str, user: str = "root") -> str:
        """Run a command that has to succeed; return its output."""
        done = self.run(machine, command, user)
        if done.returncode != 0:
            raise Trouble(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    # --- machines and programs ------------------------------------------------------------------

    @property
    def group(self) -> str:
        """The control group of its users, if podman is for them."""
        return f"interlink-site-{self.building.pid}" if self.facts.get("podman") else ""

    def start_machine(self, name: str) -> None:
        """One machine with its cables, on which nothing runs but what tells users apart."""
        group = [self.group] if self.group and name == "login" else []
        machine = start_machine(self.building, name, self.directory, *group)
        self.note(machines={**self.facts["machines"], name: machine})
        if name != OUTSIDE:
            connect(self.building, name, machine, files.addresses(self.nodes)[name])
            self.start_program("munged", name)
        if name == "login":
            self._connect_outside(machine)

    def start_program(self, program: str, name: str) -> None:
        PROGRAMS[program].start(self.machine(name), name, self.directory / "log")

    def _connect_outside(self, login: Machine) -> None:
        here = ("outside", login, f"{files.LOGIN_OUTSIDE}/30")
        there = ("login", self.machine(OUTSIDE), f"{files.OUTSIDE}/30")
        connect_two(self.building, (here, there))

    def down(self) -> None:
        """Stop all of it at once; logs and home directories stay."""
        with self.locked():
            if self.file.exists():
                for first in self.facts["machines"].values():
                    Machine(*first).wake_those_above()
                self.end()
            for name in ("root", "spool", "database"):
                shutil.rmtree(self.directory / name, ignore_errors=True)

    def end(self) -> None:
        """All that runs, at once."""
        self.building.kill()
        if self.group:
            until(lambda: remove_group(self.group), PATIENCE_S, f"the end of {self.group}")
        self.file.unlink()

    # --- what happens to sites ------------------------------------------------------------------

    def kill(self, part: str) -> None:
        """End a machine, or one program of it, as SIGKILL does."""
        with self.locked():
            program, name = self._parse(part)
            if program:
                self._end(part, signal.SIGKILL)
            else:
                self.machine(name).kill()

    def stop(self, part: str) -> None:
        """End a program as its administrator does."""
        with self.locked():
            self._end(part, signal.SIGTERM)

    def start(self, part: str) -> None:
        """Start again what has been killed: one program, or a machine with all of its programs."""
        with self.locked():
            program, name = self._parse(part)
            if program:
                self.start_program(program, name)
                return
            if Machine(*self.facts["machines"][name]).is_alive:
                raise Trouble(f"{name} runs already")
            self.start_machine(name)
            for program in self.programs(name):
                self.start_program(program, name)

    def freeze(self, part: str) -> None:
        """Stop a program without ending it."""
        self._signal(part, signal.SIGSTOP)

    def thaw(self, part: str) -> None:
        """Let it go on."""
        self._signal(part, signal.SIGCONT)

    def unplug(self, name: str) -> None:
        """Pull a machine's cable; "outside" is the one from the login node to the centre."""
        self._cable(name, "down")

    def plug(self, name: str) -> None:
        """Put it back."""
        self._cable(name, "up")

    def lead_to(self, port: int, host: str = "127.0.0.1") -> None:
        """From now on, who connects to the centre reaches this port of an address seen here."""
        file = self.directory / "nats-port"
        temporary = file.with_suffix(".new")
        temporary.write_text(f"{host}:{port}")
        temporary.rename(file)

    def programs(self, name: str) -> list[str]:
        """Return the programs of a machine besides munged, in the order in which it starts."""
        if name in self.nodes:
            return ["slurmd"]
        if name == "ctl":
            return [*(["mariadbd", "slurmdbd"] if self.facts["accounting"] else []), "slurmctld"]
        if name == "login":
            return ["docker-registry", *(["submitter"] if (self.home / SUBMITTER).exists() else [])]
        return []

    def _cable(self, name: str, state: str) -> None:
        machine = self.machine(name)
        if name == OUTSIDE:
            network(machine, [f"link set login {state}"])
        else:
            network(self.building, [f"link set {name} {state}"])

    def _end(self, part: str, number: int) -> None:
        program, name = self._parse(part)
        machine = self.machine(name)
        self._signal(part, number)
        until(lambda: not machine.processes(program), PATIENCE_S, f"the end of {part}")

    def _signal(self, part: str, number: int) -> None:
        program, name = self._parse(part)
        if not program:
            raise Trouble(f"{part} is a machine: kill it, or pull its cable")
        found = self.machine(name).processes(program)
        if not found:
            raise Trouble(f"{part} does not run")
        for pid in found:
            with contextlib.suppress(ProcessLookupError):  # a fork of it, which has ended
                os.kill(pid, number)

    def _parse(self, part: str) -> tuple[str, str]:
        """The program and the machine of ``n1``, ``slurmd@n1``, ``munged@login``, ``slurmctld``."""
        program, _, name = part.partition("@")
        if program in PROGRAMS:
            name = name or PROGRAMS[program].home
        else:
            program, name = "", part
        known = [name for name in self.facts["machines"] if name != OUTSIDE]
        if name not in known:
            raise Trouble(f"{part}: is neither a machine ({' '.join(known)}) nor PROGRAM@MACHINE")
        return program, name
