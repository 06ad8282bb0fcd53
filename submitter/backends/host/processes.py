"""Processes of this machine as the host backend sees them: who lives, who belongs to a job."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Optional

_KILL_ROUNDS = 5
_CGROUP_MOUNTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")


class ProcessIdentity(NamedTuple):
    """One process for ever: pids come back, and so does the time since boot."""

    pid: int
    start: int  # in ticks since the machine was started
    boot: str
    machine: str = ""  # its name; empty: not told

    def __str__(self) -> str:
        return f"{self.pid}.{self.start}.{self.boot}" + (self.machine and f".{self.machine}")


class Stat(NamedTuple):
    """What /proc says of a process."""

    state: str
    session: int
    start: int


def boot_id() -> str:
    """Which start of this machine it is."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def parse_identity(text: str) -> Optional[ProcessIdentity]:
    """The process in its text, with dots or blanks between the parts; None if it is none."""
    parts = text.replace(".", " ").split()
    if len(parts) < 3 or not (parts[0].isdigit() and parts[1].isdigit()):
        return None
    return ProcessIdentity(int(parts[0]), int(parts[1]), parts[2], ".".join(parts[3:]))


def stat_of(pid: int) -> Optional[Stat]:
    """None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b") ")[2].split()
    except OSError:
        return None
    return Stat(fields[0].decode(), int(fields[3]), int(fields[19]))


def is_alive(process: ProcessIdentity, boot: str) -> bool:
    """Whether that very process still runs."""
    stat = stat_of(process.pid) if process.boot == boot else None
    return stat is not None and stat.start == process.start and stat.state not in "ZX"


def send(process: ProcessIdentity, boot: str, number: int) -> None:
    """Signal that very process, if it still runs."""
    if is_alive(process, boot):
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            return


# --- all that a job has started -----------------------------------------------------------------


class Suspect(NamedTuple):
    """By what the processes of a job are recognised."""

    leader: Optional[ProcessIdentity]  # of its session
    cgroup: str


def kill_all(suspects: Mapping[str, Suspect], boot: str) -> set[str]:
    """KILL whatever belongs to these jobs; the names of those of which nothing is left."""
    left: set[str] = set()
    for _ in range(_KILL_ROUNDS):
        left = set()
        for name, pid in _members(suspects, boot):
            left.add(name)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if not left:
            break
        time.sleep(0.02)  # for the kernel to carry it out
    return suspects.keys() - left


def _members(suspects: Mapping[str, Suspect], boot: str) -> Iterator[tuple[str, int]]:
    """Job and pid of each process that belongs to one of the jobs, by one look at all processes."""
    sessions: dict[int, str] = {}
    for name, suspect in suspects.items():
        for pid in _cgroup_members(suspect.cgroup):
            yield name, pid
        leader = suspect.leader
        if leader is not None and leader.boot == boot:
            there = stat_of(leader.pid)
            if there is None or there.start == leader.start:  # else the number has a new owner
                sessions[leader.pid] = name
    marks = {mark: name for name in suspects for mark in marks_of(name)}
    for pid in _own_processes():
        stat = stat_of(pid)
        if stat is None or stat.state in "ZX" or pid == os.getpid():
            continue
        owner = sessions.get(stat.session) or _marked(pid, marks)
        if owner is not None:
            yield owner, pid


def marks_of(job: str) -> tuple[bytes, bytes]:
    """How entries in the environment of a job's processes begin."""
    return f"INTERLINK_JOB={job}".encode(), f"INTERLINK_CONTAINER={job}".encode()


def _marked(pid: int, marks: Mapping[bytes, str]) -> Optional[str]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            content = file.read()
    except OSError:
        return None
    if b"INTERLINK_" not in content:
        return None
    for entry in content.split(b"\0"):
        name = marks.get(entry.partition(b".")[0])
        if name is not None:
            return name
    return None


def _own_processes() -> Iterable[int]:
    user = os.geteuid()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if user in (0, os.stat(f"/proc/{name}").st_uid):
                    yield int(name)
            except OSError:
                continue


# --- control groups -----------------------------------------------------------------------------


def cgroup_base() -> str:
    """Where this process may make control groups; empty where it may not."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            own = next((line[3:].strip() for line in file if line.startswith("0::")), None)
    except OSError:
        return ""
    for mount in _CGROUP_MOUNTS:
        path = f"{mount}/{(own or '').strip('/')}".rstrip("/")
        if own is not None and os.access(f"{path}/cgroup.procs", os.W_OK):
            return path
    return ""


def make_cgroup(path: str) -> str:
    """Make a control group without limits; empty where that fails."""
    try:
        if path:
            os.mkdir(path)
    except FileExistsError:
        return path
    except OSError:
        return ""
    return path


def remove_cgroup(path: str) -> None:
    """Remove an empty one."""
    try:
        os.rmdir(path)
    except OSError:
        return


def _cgroup_members(path: str) -> Iterable[int]:
    if not path:
        return []
    try:
        with open(f"{path}/cgroup.procs", encoding="ascii") as file:
            return [int(line) for line in file]
    except OSError:
        return []
