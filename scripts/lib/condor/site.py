"""An HTCondor site on this machine: central manager, access point (the login node), worker nodes.

Each machine of it is a set of name spaces, all below one process, as in a Slurm site. The login
node is where the submitter belongs; what it shares with the nodes is the folder of home
directories, or, in a site without a shared file system, nothing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from scripts.lib.condor import files as condor_files
from scripts.lib.slurm import files
from scripts.lib.slurm.machines import (
    REPOSITORY as SOURCES,
)
from scripts.lib.slurm.machines import (
    Machine,
    Trouble,
    connect,
    start_building,
    start_inside,
    start_relay,
    until,
)
from scripts.lib.slurm.programs import PROGRAMS, SUBMITTER
from scripts.lib.slurm.site import OUTSIDE, REPOSITORY, Site
from scripts.lib.slurm.up import CERTIFICATES

SCRIPT = Path(__file__).resolve().parent / "machines.sh"
FOLDERS = ("etc", "home", "apart", "witness", "log", "state", "machines")
PATIENCE_S = 60.0
MASTER = "condor_master"
SUBMITTER_NAME = "submitter"  # in PROGRAMS
LOGS = "/var/log/site"  # the folder "log", as its machines see it
DAEMONS = {
    "ctl": ["condor_collector", "condor_negotiator"],
    "login": ["condor_schedd"],
}
ON_NODES = ["condor_startd"]


class Plan(NamedTuple):
    """Properties of a site that is to be made."""

    root: Path  # the file system that its machines begin with
    python: str  # in there, with what our packages need
    nodes: int = 2
    shared: bool = True  # whether nodes see the login node's home directories
    element: Optional[Path] = None  # if it is used from another machine: who it is (ca, cert, key)
    changes: Mapping[str, str] = {}  # of the configuration


class CondorSite(Site):
    """The site of one folder; several objects and processes may speak for it."""

    @property
    def door(self) -> str:
        """Where the submitter belongs: the machine that has the users, and the cable outside."""
        return condor_files.AWAY if self.facts["element"] else "login"

    def python(self, arguments: Sequence[str]) -> list[str]:
        python = ["env", f"PYTHONPATH={REPOSITORY}", self.facts["python"], "-P"]
        return self.command(self.door, [*python, *arguments], files.USER)

    def programs(self, name: str) -> list[str]:
        """Return the programs of a machine: condor_master, and what that keeps running."""
        if name in self.nodes:
            return [MASTER, *ON_NODES]
        found = [MASTER, *DAEMONS[name]] if name in DAEMONS else []
        if name == self.door and (self.home / SUBMITTER).exists():
            found.append(SUBMITTER_NAME)
        return found

    def start_machine(self, name: str) -> None:
        """One machine with its cables, on which nothing runs."""
        home = self.directory / "home"
        if not self.facts["shared"] and name != self.door:
            home = self.directory / "apart" / name
        _make_home(home)
        words = [name, self.facts["root"], str(self.directory), str(SOURCES), str(home)]
        command = ["bash", str(SCRIPT), "machine", *words]
        machine = start_inside(self.building, command, self.directory)
        self.note(machines={**self.facts["machines"], name: machine})
        if name != OUTSIDE:
            places = condor_files.places_of(self.nodes, element=self.facts["element"])
            connect(self.building, name, machine, places[name])
        if name == self.door:
            self._connect_outside(machine)

    def start_program(self, program: str, name: str) -> None:
        """Start it, or wait until condor_master has brought back what was killed below it."""
        machine = self.machine(name)
        if program == SUBMITTER_NAME:
            PROGRAMS[program].start(machine, name, self.directory / "log", LOGS)
            return
        if program == MASTER:
            words = [f"{key}={value}" for key, value in condor_files.SCITOKENS.items()]
            self.do(name, "env", *words, MASTER)
        seconds, where = PATIENCE_S, f"see {self.directory}/log/{name}"
        until(lambda: machine.processes(program), seconds, f"{program} on {name}: {where}")

    def start(self, part: str) -> None:
        """Start again what has been killed: one program, or a machine with its programs."""
        with self.locked():
            program, name = self._parse(part)
            if not program and Machine(*self.facts["machines"][name]).is_alive:
                raise Trouble(f"{name} runs already")
            if not program:
                self.start_machine(name)
            for one in (program,) if program else self.programs(name):
                self.start_program(one, name)

    def down(self) -> None:
        """Stop all of it at once; logs and home directories stay."""
        with self.locked():
            if self.file.exists():
                self.building.kill()
                self.file.unlink()
            for name in ("etc", "machines", "state"):
                shutil.rmtree(self.directory / name, ignore_errors=True)

    def _parse(self, part: str) -> tuple[str, str]:
        """The program and the machine of ``n1``, ``condor_startd@n1``, ``condor_schedd``."""
        program, _, name = part.partition("@")
        homes = {one: home for home, names in DAEMONS.items() for one in names}
        homes[SUBMITTER_NAME] = self.door
        if program in (MASTER, *ON_NODES, *homes):
            name = name or homes.get(program, "")
        else:
            program, name = "", part
        known = [name for name in self.facts["machines"] if name != OUTSIDE]
        if name not in known:
            raise Trouble(f"{part}: is neither a machine ({' '.join(known)}) nor PROGRAM@MACHINE")
        return program, name


def _make_home(home: Path) -> None:
    own = home / files.USER
    if not own.exists():
        own.mkdir(parents=True)
        os.chown(own, files.USER_ID, files.USER_ID)


# --- starting one ---------------------------------------------------------------------------------


def up(site: CondorSite, plan: Plan) -> None:
    """Start all of it; whatever keeps it from that, nothing is left running."""
    site.directory.mkdir(parents=True, exist_ok=True)
    with site.locked(), _building(site, plan):
        away = [condor_files.AWAY] if plan.element else []
        for name in (OUTSIDE, "ctl", "login", *away, *site.nodes):
            site.start_machine(name)
        outside = site.machine(OUTSIDE)
        subprocess.run(outside.enter(["nft", "-f", "-"]), input=files.BORDER, text=True, check=True)
        address = (files.OUTSIDE, files.CENTRE_PORT)
        start_relay(site.building, outside, address, site.directory / "nats-port")
        for name in ("ctl", "login", *site.nodes):
            site.start_program(MASTER, name)
        _wait_for_pool(site)


@contextlib.contextmanager
def _building(site: CondorSite, plan: Plan) -> Iterator[None]:
    """The site without machines; it is kept when nothing is raised, and nobody kills us."""
    _make_folders(site, plan)
    reading, writing = os.pipe()
    try:
        command = ["bash", str(SCRIPT), "site", str(reading)]
        building = start_building(command, site.directory, reading)
        site.note(
            site=building,
            machines={},
            nodes=files.node_names(plan.nodes),
            shared=plan.shared,
            element=plan.element is not None,
            root=str(plan.root),
            python=plan.python,
            user=files.USER,
            home=str(site.home),
            repository=REPOSITORY,
            nats={"host": files.CENTRE, "port": files.CENTRE_PORT},
        )
        yield
        os.write(writing, b"ready\n")
    except BaseException:
        if site.file.exists():
            site.building.kill()
            site.file.unlink()
        raise
    finally:
        os.close(reading)
        os.close(writing)


def _make_folders(site: CondorSite, plan: Plan) -> None:
    """All that the site writes, with nothing of an earlier one in it."""
    if site.file.exists():
        if site.building.is_alive:
            raise Trouble(f"{site.directory}: its site is up already")
        site.file.unlink()
    elif set(os.listdir(site.directory)) - {"lock", "nats-port", *FOLDERS}:
        raise Trouble(f"{site.directory}: is neither empty nor a site's folder")
    for name in FOLDERS:
        shutil.rmtree(site.directory / name, ignore_errors=True)
        (site.directory / name).mkdir()
    for name in ("witness", "log"):
        (site.directory / name).chmod(0o777)
    nodes = files.node_names(plan.nodes)
    texts = condor_files.configuration(
        nodes, shared=plan.shared, element=plan.element is not None, changes=plan.changes
    )
    for name, text in texts.items():
        (site.directory / "etc" / name).write_text(text)
    shutil.copy(plan.root / CERTIFICATES, site.certificates)
    if plan.element is not None:
        for name in ("ca.pem", "cert.pem", "key.pem"):
            shutil.copy(plan.element / name, site.directory / "etc")
    key = site.directory / "etc" / "POOL"  # by which the site's machines know each other
    key.touch(0o600)
    key.write_bytes(os.urandom(64))


def _wait_for_pool(site: CondorSite) -> None:
    """Until the collector knows all nodes and the access point, which takes jobs."""

    def ready() -> bool:
        nodes = site.run("login", ["condor_status", "-af", "Machine"])
        schedds = site.run("login", ["condor_status", "-schedd", "-af", "Name"])
        queue = site.run("login", ["condor_q", "-totals"], files.USER)
        known = len(set(nodes.stdout.split())) == len(site.nodes)
        return known and bool(schedds.stdout) and queue.returncode == 0

    until(ready, PATIENCE_S, f"a pool of {len(site.nodes)} nodes: see {site.directory}/log")
