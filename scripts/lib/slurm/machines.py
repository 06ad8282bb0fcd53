"""Machines that are name spaces: how one is started, entered, killed, and how it reaches others."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]
SCRIPT = HERE / "machines.sh"
INSIDE = "/interlink-nats/scripts/lib/slurm"  # the same folder, as machines see it
_APART = (*"unshare --mount --propagation private --net --uts --ipc --pid".split(),)


class Trouble(Exception):
    """An error of a site, in words."""


class Machine(NamedTuple):
    """The first process of a machine, as seen from here, and when it began."""

    pid: int
    began: int

    @property
    def is_alive(self) -> bool:
        """Return whether it is there, and no other process under its number."""
        return began(self.pid) == self.began

    @property
    def number(self) -> int:
        """The number of its process as the site sees it."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-2])
        raise Trouble(f"process {self.pid} is in no machine")

    @property
    def root(self) -> Path:
        """Its files."""
        return Path(f"/proc/{self.pid}/root")

    def enter(self, command: Sequence[str], user: str = "root", directory: str = "/") -> list[str]:
        """Return the command to run here so that the given one runs there."""
        enter = [sys.executable, "-I", "-S", str(HERE / "enter.py")]
        return [*enter, str(self.pid), user, directory, *command]

    def listens(self, port: int) -> bool:
        """Return whether anything listens there on this TCP port."""
        lines = [
            line.split()
            for kind in ("tcp", "tcp6")
            for line in Path(f"/proc/{self.pid}/net/{kind}").read_text().splitlines()[1:]
        ]
        return any(words[1].endswith(f":{port:04X}") and words[3] == "0A" for words in lines)

    def processes(self, name: str) -> list[int]:
        """The processes of a program there, by their numbers here."""
        space, short = _space(self.pid), name[:15]  # all that Linux keeps of it
        return [pid for pid in all_processes() if _name(pid) == short and _space(pid) == space]

    def kill(self, seconds: float = 60) -> None:
        """End it as a power cut does; returns when nothing of it runs any more."""
        if not self.is_alive:
            return
        os.kill(self.pid, signal.SIGKILL)
        until(lambda: not self.is_alive, seconds, f"the end of process {self.pid}")

    def wake_those_above(self) -> None:
        """Continue what has started it: nsenter stops when its child does, and notices no end."""
        pid = self.pid
        for _ in range(2):
            with contextlib.suppress(OSError, IndexError):
                pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
                os.kill(pid, signal.SIGCONT)


def began(pid: int) -> int:
    """When a process began, in ticks; 0 when there is none, or only its remains."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if words[0] == "Z" else int(words[19])


def all_processes() -> list[int]:
    """Every process of this machine."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _space(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def until(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """Wait for something to become true, and return it."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            raise Trouble(f"waited {seconds:g} s in vain for {what}")
        time.sleep(0.02)
    return found


def _start(command: Sequence[str], log: Path, levels: int, *files: int) -> Machine:
    """Start what says "ready", and return the process so many forks below it."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=out,
            pass_fds=files,
            start_new_session=True,
        )
    told = process.stdout
    if told is None or told.readline() != b"ready\n":
        raise Trouble(f"{Path(command[-1]).name} does not start: see {log}")
    told.close()
    pid = process.pid
    for _ in range(levels):
        pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
    process.returncode = 0  # it goes on without us
    return Machine(pid, began(pid))


def start_site(root: Path, directory: Path, hold: int) -> Machine:
    """The building that the machines of a site stand in, with their switch.

    It is gone as soon as all who write to ``hold``'s other end are, unless a line came first.
    """
    command = ["bash", str(SCRIPT), "site", str(root), str(directory), str(REPOSITORY), str(hold)]
    return start_building(command, directory, hold)


def start_building(command: Sequence[str], directory: Path, hold: int) -> Machine:
    """The first process of a site, in name spaces of its own."""
    log = directory / "log" / "machines.log"
    return _start([*_APART, "--fork", "--kill-child", *command], log, 1, hold)


def start_machine(site: Machine, name: str, directory: Path, *group: str) -> Machine:
    """One machine, with no cable yet; with a control group for podman, if there is to be one."""
    command = ["bash", f"{INSIDE}/{SCRIPT.name}", "machine", name, str(directory), *group]
    return start_inside(site, command, directory)


def start_inside(site: Machine, command: Sequence[str], directory: Path) -> Machine:
    """The first process of a machine of a site."""
    into = ["nsenter", "--target", str(site.pid), "--mount", "--net", "--uts", "--ipc", "--pid"]
    log = directory / "log" / "machines.log"
    apart = [*into, "--", *_APART, "--fork", "--kill-child", "--mount-proc"]
    return _start([*apart, *command], log, 2)


def start_relay(site: Machine, outside: Machine, address: tuple[str, int], file: Path) -> None:
    """Lead from an address outside to the port of this machine that stands in the file."""
    into = ["nsenter", "--target", str(site.pid), "--pid", "--"]
    command = ["env", f"PYTHONPATH={REPOSITORY}", sys.executable, "-P", "-m"]
    arguments = ["scripts.lib.slurm.relay", str(outside.pid), address[0], str(address[1]), file]
    log = file.parent / "log" / "relay.log"
    _start([*into, *command, *map(str, arguments)], log, 0)


def remove_group(name: str) -> bool:
    """Remove a control group with all below it, once nothing runs there; whether it is gone."""
    places = [f"/sys/fs/cgroup/{name}", f"/sys/fs/cgroup/unified/{name}"]
    for place in places:
        for folder, _, _ in os.walk(place, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
    return not any(map(os.path.exists, places))


def network(machine: Machine, lines: Sequence[str]) -> None:
    """Carry out commands of ip(8) in the network of a machine."""
    into = ["nsenter", "--target", str(machine.pid), "--mount", "--net", "--pid", "--"]
    command = [*into, "ip", "-batch", "-"]
    text = "".join(f"{line}\n" for line in lines)
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Trouble(f"ip: {done.stderr.strip()} ({'; '.join(lines)})")


def connect(site: Machine, name: str, machine: Machine, address: str) -> None:
    """Put a cable from the site's switch to a machine."""
    cable = f"link add {name} type veth peer name lan netns {machine.number}"
    network(site, [cable, f"link set {name} master site up"])
    network(machine, [f"address add {address}/24 dev lan", "link set lan up"])


def connect_two(site: Machine, ends: Sequence[tuple[str, Machine, str]]) -> None:
    """Put a cable between two machines; of each end: its name there, the machine, the address."""
    (one, first, _), (other, second, _) = ends
    cable = f"link add {one} netns {first.number} type veth peer name {other}"
    network(site, [f"{cable} netns {second.number}"])
    for name, machine, address in ends:
        network(machine, [f"address add {address} dev {name}", f"link set {name} up"])
