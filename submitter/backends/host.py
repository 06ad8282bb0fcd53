"""Runs jobs on this very machine, as many at a time as fit, in the order in which they came.

The truth is in files, so that jobs outlive the submitter and several submitters may share the
machine. ``running/<job>`` in the pool's directory says what a job takes, from before its start
until nothing is left of it. It is locked by an open file which the job's first process inherits,
and gives up once ``begun`` in the job's directory says which process the job is. So a lock that is
free beside a missing ``begun`` means, for certain, that the job was never started.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from typing import Optional

from submitter import command
from submitter.backends.base import Backend, Sighting, Ticket
from submitter.backends.processes import (
    Identity,
    Suspect,
    boot_id,
    cgroup_base,
    is_alive,
    kill_all,
    make_cgroup,
    parse_identity,
    remove_cgroup,
    send,
    stat_of,
)
from submitter.errors import BackendUnavailable, CommandFailed, Forbidden, NoRoom, SubmitUnclear
from submitter.journal import read
from submitter.locks import locked, take
from submitter.settings import Pool
from templates.job import Job
from templates.quantity import byte_count, count, cpu_milli
from templates.states import ENDED, STARTED

STUB = r"""# By interlink-submitter: becomes a job's script, once; says first which process it is.
# JOB_DIRECTORY SPOOL_DIRECTORY DESCRIPTOR CGROUP
umask 077
unset NOTIFY_SOCKET WATCHDOG_PID WATCHDOG_USEC INVOCATION_ID JOURNAL_STREAM
export INTERLINK_JOB=${1##*/}
[ -z "$4" ] || echo $$ 2>/dev/null >"$4/cgroup.procs"
read -r stat </proc/$$/stat
fields=(${stat##*) })
read -r boot </proc/sys/kernel/random/boot_id
set -C
if ! echo "$$ ${fields[19]} $boot $HOSTNAME" >"$1/begun"; then
    echo "interlink: the job was started before, or its directory cannot be written" >&2
    exit 3
fi
eval "exec $3>&-"
exec bash "$1/job.sh" "$1" "$2"
"""
BEGIN_TIMEOUT_S = 10.0
LINGER_S = 10.0
PODS = 110
UNITS = {"cpu": ("cpus", 1000), "memory": ("GiB of memory", 2**30)}


class Host(Backend):
    """The machine that the submitter runs on."""

    settle_s = 3.0
    visible_after_s = 0.0  # what is not found was not started
    lost_after_s = 3.0

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)
        self._boot = boot_id()
        self._cgroups = cgroup_base()
        self._running = f"{pool.directory}/running"
        self._stub = f"{pool.directory}/host-stub.sh"
        self._offer = _offer(pool)
        self._limits = _amounts(self._offer)
        self._taken: dict[str, dict[str, int]] = {}
        self._children: list[command.Child] = []
        self._lingering: dict[str, float] = {}

    def capacity(self) -> dict[str, str]:
        return dict(self._offer)

    def check(self, job: Job) -> None:
        for name, wanted in _wanted(job).items():
            limit = self._limits.get(name, 0)
            if wanted > limit:
                words = (
                    f"asks for {_say(name, wanted)}, and this machine offers {_say(name, limit)}"
                )
                raise Forbidden(words)

    # --- starting -----------------------------------------------------------------------------

    def submit(self, job: Job, directory: str) -> str:
        entry = f"{self._running}/{job.name}"
        try:
            os.makedirs(self._running, 0o700, exist_ok=True)
            self._write_stub()
            with locked(f"{self.pool.directory}/host.lock", wait=True):
                self._find_room(job)
                descriptor = self._enter(entry, _wanted(job))
        except OSError as error:
            raise NoRoom(f"its place in the queue cannot be written: {error.strerror}") from None
        try:
            return self._start(job.name, directory, descriptor)
        except CommandFailed as error:
            os.unlink(entry)
            raise NoRoom(str(error)) from None
        finally:
            os.close(descriptor)

    def _enter(self, entry: str, wanted: Mapping[str, int]) -> int:
        """Take the room, and the lock that the job's process will inherit."""
        try:
            descriptor = os.open(entry, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise SubmitUnclear("it is being started already") from None
        try:
            take(descriptor, wait=True)
            os.write(descriptor, json.dumps(wanted).encode())
        except OSError:
            _unlink(entry)
            os.close(descriptor)
            raise
        return descriptor

    def _start(self, name: str, directory: str, descriptor: int) -> str:
        spool = f"{self.pool.directory}/spool"
        stub = [
            "bash",
            self._stub,
            directory,
            spool,
            str(descriptor),
            make_cgroup(self._cgroup(name)),
        ]
        child = command.start(stub, f"{directory}/output", descriptor)
        self._children = [running for running in self._children if running.poll() is None]
        self._children.append(child)
        stat = stat_of(child.pid)  # it cannot be gone: nobody has asked for its exit code
        return str(Identity(child.pid, stat.start if stat else 0, self._boot))

    def _write_stub(self) -> None:
        if read(self._stub) != STUB.encode():
            draft = f"{self._stub}.{os.getpid()}"
            with open(draft, "w", encoding="utf-8") as file:
                file.write(STUB)
            os.rename(draft, self._stub)

    def _find_room(self, job: Job) -> None:
        used: dict[str, int] = {}
        names = self._running_jobs() - {job.name}
        self._taken = {name: self._taken.get(name) or self._read_entry(name) for name in names}
        for taken in self._taken.values():
            for name, amount in taken.items():
                used[name] = used.get(name, 0) + amount
        for name, wanted in _wanted(job).items():
            free = self._limits.get(name, 0) - used.get(name, 0)
            if wanted > free:
                words = f"waits for {_say(name, wanted)}: {_say(name, max(free, 0))} are free now"
                raise NoRoom(words)

    def _running_jobs(self) -> set[str]:
        """The jobs that take room; those whose directory was removed meanwhile are ended first."""
        names = set(os.listdir(self._running))
        lost = {n for n in names if not os.path.exists(f"{self.pool.directory}/jobs/{n}")}
        gone: set[str] = set()
        if lost:
            suspects = {name: Suspect(None, self._cgroup(name)) for name in lost}
            gone = kill_all(suspects, self._boot)
        for name in gone:
            _unlink(f"{self._running}/{name}")
        return names - gone

    def _read_entry(self, name: str) -> dict[str, int]:
        try:
            found: dict[str, int] = json.loads(read(f"{self._running}/{name}") or b"{}")
        except ValueError:
            return {}
        return found

    # --- looking --------------------------------------------------------------------------------

    def find(self, names: Sequence[str]) -> dict[str, str]:
        found = {}
        for name in names:
            process = self._begun(name)
            if process is not None:
                found[name] = str(process)
        return found

    def _begun(self, name: str) -> Optional[Identity]:
        """The process of a job that was started; None for one that certainly was not."""
        entry, begun = f"{self._running}/{name}", f"{self.pool.directory}/jobs/{name}/begun"
        end = time.monotonic() + BEGIN_TIMEOUT_S
        while True:
            free = self._is_free(entry)
            said = read(begun)
            if said is not None and (said.endswith(b"\n") or free):
                # An empty one: killed, or the disk was full, between these two steps.
                return parse_identity(said.decode(errors="replace")) or Identity(0, 0, "-")
            if free:
                _unlink(entry)
                return None
            if time.monotonic() > end:
                raise BackendUnavailable(f"{name} does not begin")
            time.sleep(0.02)

    def _is_free(self, entry: str) -> bool:
        try:
            descriptor = os.open(entry, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            return take(descriptor, wait=False)
        finally:
            os.close(descriptor)

    def poll(self, tickets: Sequence[Ticket]) -> Mapping[str, Sighting]:
        self._children = [child for child in self._children if child.poll() is None]
        return {ticket.name: self._sight(ticket) for ticket in tickets}

    def _sight(self, ticket: Ticket) -> Sighting:
        process = parse_identity(ticket.native)
        if process is not None and is_alive(process, self._boot):
            return Sighting(STARTED)
        why = "its process was killed"
        if process is not None and process.boot != self._boot:
            why = "the machine was restarted" if process.pid else "it was killed while it began"
        return Sighting(ENDED, message=why, exit_code=1)

    # --- ending ---------------------------------------------------------------------------------

    def cancel(self, tickets: Sequence[Ticket], kill: bool) -> None:
        if kill:
            kill_all({ticket.name: self._suspect(ticket) for ticket in tickets}, self._boot)
            return
        for ticket in tickets:
            process = parse_identity(ticket.native)
            if process is not None:
                send(process, self._boot, signal.SIGTERM)

    def clean(self, tickets: Sequence[Ticket]) -> set[str]:
        self._children = [child for child in self._children if child.poll() is None]
        over = {t.name: self._suspect(t) for t in tickets if not self._still_ends(t)}
        clean = kill_all(over, self._boot) if over else set()
        for name in clean:
            remove_cgroup(over[name].cgroup)
            _unlink(f"{self._running}/{name}")
            self._lingering.pop(name, None)
        return clean

    def _still_ends(self, ticket: Ticket) -> bool:
        """A script that has said its last word ends by itself within a moment."""
        process = parse_identity(ticket.native)
        if process is None or not is_alive(process, self._boot):
            return False
        since = self._lingering.setdefault(ticket.name, time.monotonic())
        return time.monotonic() - since < LINGER_S

    def _suspect(self, ticket: Ticket) -> Suspect:
        return Suspect(parse_identity(ticket.native), self._cgroup(ticket.name))

    def _cgroup(self, name: str) -> str:
        return f"{self._cgroups}/interlink-{name}" if self._cgroups else ""


def _offer(pool: Pool) -> dict[str, str]:
    """The machine's own, unless the pool's options or resources say otherwise."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    own = {"cpu": str(len(os.sched_getaffinity(0))), "memory": str(memory), "pods": str(PODS)}
    said = {name: str(value) for name, value in pool.options.items() if name in own}
    return {**own, **said, **pool.resources}


def _amounts(offer: Mapping[str, str]) -> dict[str, int]:
    """As whole numbers: cpus in thousandths, memory in bytes."""
    units = {"cpu": cpu_milli, "memory": byte_count}
    return {name: units.get(name, count)(text, name) for name, text in offer.items()}


def _wanted(job: Job) -> dict[str, int]:
    amounts = {"cpu": job.cpu_milli, "memory": job.memory_bytes, "pods": 1}
    return {**amounts, **job.gpus}


def _say(name: str, amount: int) -> str:
    unit, size = UNITS.get(name, (name, 1))
    return f"{amount / size:.4g} {unit}"


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
