"""Processes of this machine: which are alive, and which belong to a job."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Optional

_KILL_ROUNDS = 5
_CGROUP_MOUNTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")


class ProcessIdentity(NamedTuple):
    """A unique process: pids are reused, and so are times since boot."""

    pid: int
    start: int  # in ticks since the machine was started
    boot: str
    machine: str = ""  # its name; empty: this one

    def __str__(self) -> str:
        return f"{self.pid}.{self.start}.{self.boot}" + (self.machine and f".{self.machine}")


class ProcessStat(NamedTuple):
    """A process in /proc."""

    state: str
    session: int
    start: int


def read_boot_id() -> str:
    """Return the identity of the machine's current boot."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def parse_identity(text: str) -> Optional[ProcessIdentity]:
    """Parse an identity with dots or blanks between its parts; None if it is invalid."""
    parts = text.replace(".", " ").split()
    if len(parts) < 3 or not (parts[0].isdigit() and parts[1].isdigit()):
        return None
    return ProcessIdentity(int(parts[0]), int(parts[1]), parts[2], ".".join(parts[3:]))


def read_stat(pid: int) -> Optional[ProcessStat]:
    """Return a process in /proc; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b") ")[2].split()
    except OSError:
        return None
    return ProcessStat(fields[0].decode(), int(fields[3]), int(fields[19]))


def is_alive(process: ProcessIdentity, boot: str) -> bool:
    """Return whether that very process still runs."""
    stat = read_stat(process.pid) if process.boot == boot else None
    return stat is not None and stat.start == process.start and stat.state not in "ZX"


def send_signal(process: ProcessIdentity, boot: str, number: int) -> None:
    """Signal that very process, if it still runs."""
    if is_alive(process, boot):
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            return


# --- all processes of a job ---------------------------------------------------------------------


class JobProcesses(NamedTuple):
    """The session and control group of a job's processes."""

    leader: Optional[ProcessIdentity]  # of its session
    cgroup: str


def kill_all(jobs: Mapping[str, JobProcesses], boot: str) -> set[str]:
    """Kill all processes of these jobs; return the names of jobs of which none is left."""
    left: set[str] = set()
    for _ in range(_KILL_ROUNDS):
        left = set()
        for name, pid in _find_members(jobs, boot):
            left.add(name)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if not left:
            break
        time.sleep(0.02)  # for the kernel to carry it out
    return jobs.keys() - left


def _find_members(jobs: Mapping[str, JobProcesses], boot: str) -> Iterator[tuple[str, int]]:
    """Yield job and pid of each process of these jobs, after one pass over all processes."""
    sessions: dict[int, str] = {}
    for name, job in jobs.items():
        for pid in _read_cgroup(job.cgroup):
            yield name, pid
        leader = job.leader
        if leader is not None and leader.boot == boot:
            stat = read_stat(leader.pid)
            if stat is None or stat.start == leader.start:  # otherwise the pid was reused
                sessions[leader.pid] = name
    marks = {mark: name for name in jobs for mark in environment_marks(name)}
    for pid in _list_own_pids():
        stat = read_stat(pid)
        if stat is None or stat.state in "ZX" or pid == os.getpid():
            continue
        owner = sessions.get(stat.session) or _find_marked_job(pid, marks)
        if owner is not None:
            yield owner, pid


def environment_marks(job: str) -> tuple[bytes, bytes]:
    """Return how entries in the environment of a job's processes begin."""
    return f"INTERLINK_JOB={job}".encode(), f"INTERLINK_CONTAINER={job}".encode()


def _find_marked_job(pid: int, marks: Mapping[bytes, str]) -> Optional[str]:
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


def _list_own_pids() -> Iterable[int]:
    user = os.geteuid()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if user in (0, os.stat(f"/proc/{name}").st_uid):
                    yield int(name)
            except OSError:
                continue


# --- control groups -----------------------------------------------------------------------------


def find_cgroup_base() -> str:
    """Return where this process may make control groups; empty if nowhere."""
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
    """Make a control group without limits; return its path, empty if that fails."""
    try:
        if path:
            os.mkdir(path)
    except FileExistsError:
        return path
    except OSError:
        return ""
    return path


def remove_cgroup(path: str) -> None:
    """Remove an empty control group."""
    try:
        os.rmdir(path)
    except OSError:
        return


def _read_cgroup(path: str) -> Iterable[int]:
    if not path:
        return []
    try:
        with open(f"{path}/cgroup.procs", encoding="ascii") as file:
            return [int(line) for line in file]
    except OSError:
        return []
