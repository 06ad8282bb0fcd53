"""Runs jobs on this very machine, as many at a time as fit, in the order in which they came.

The truth is in files, so that jobs outlive the submitter and several submitters may share the
machine. ``running/<job>`` in the pool's directory says what a job takes, from before its start
until nothing is left of it. It is locked by an open file which the job's first process inherits,
and gives up once ``begun`` in the job's directory says which process the job is. So a lock that is
free beside a missing ``begun`` means, for certain, that the job was never started.

Several machines may share a pool's directory: each looks after the jobs that it has started, and
believes what the others write down of theirs.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Optional

from submitter.backends.base import Backend, JobRef, Observation
from submitter.backends.host import accounting as room
from submitter.backends.host import options as host_options
from submitter.backends.host.accounting import Taken
from submitter.backends.host.machines import Machines
from submitter.backends.host.processes import (
    ProcessIdentity,
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
from submitter.common import command
from submitter.common.errors import (
    BackendUnavailable,
    CommandFailed,
    Forbidden,
    NoRoom,
    SubmitUnclear,
)
from submitter.common.filelock import acquire, locked
from submitter.common.nats_request import AskNats, not_connected
from submitter.config.settings import Pool
from submitter.store.journal import read
from templates.job.model import Job
from templates.job.status import ENDED, STARTED

STUB = r"""# By interlink-submitter: becomes a job's script, once; says first which process it is.
# JOB_DIRECTORY SPOOL_DIRECTORY DESCRIPTOR CGROUP [NAME=VALUE ...]
umask 077
unset NOTIFY_SOCKET WATCHDOG_PID WATCHDOG_USEC INVOCATION_ID JOURNAL_STREAM
export INTERLINK_JOB=${1##*/}
for entry in "${@:5}"; do export "$entry"; done
[ -z "$4" ] || echo $$ 2>/dev/null >"$4/cgroup.procs"
read -r stat </proc/$$/stat
fields=(${stat##*) })
read -r boot </proc/sys/kernel/random/boot_id
read -r machine </proc/sys/kernel/hostname
set -C
if ! echo "$$ ${fields[19]} $boot $machine" >"$1/begun"; then
    echo "interlink: the job was started before, or its directory cannot be written" >&2
    exit 3
fi
eval "exec $3>&-"
exec bash "$1/job.sh" "$1" "$2"
"""
BEGIN_TIMEOUT_S = 10.0
LINGER_S = 10.0


class HostBackend(Backend):
    """The machine that the submitter runs on."""

    settle_s = 3.0
    visible_after_s = 0.0  # what is not found was not started
    lost_after_s = 3.0
    urgent_s = 1.0
    runs_here = True

    def __init__(self, pool: Pool, ask: AskNats = not_connected) -> None:
        super().__init__(pool, ask)
        self._boot = boot_id()
        self._cgroups = cgroup_base()
        self._running = f"{pool.directory}/running"
        self._stub = f"{pool.directory}/host-stub.sh"
        self._options = host_options.load(pool)
        offer = host_options.offer(self._options, pool.resources)
        self._limits = room.amounts(offer)
        self._machines = Machines(pool.directory, offer, pool.timing.resources_s)
        self._taken: dict[str, Taken] = {}
        self._children: list[command.Child] = []
        self._lingering: dict[str, float] = {}

    @classmethod
    def needs_shared_directory(cls, pool: Pool) -> bool:
        return False

    def capacity(self) -> dict[str, str]:
        return self._machines.offered()

    def check(self, job: Job) -> None:
        asked = room.wanted(job)
        if all(wanted <= self._limits.get(name, 0) for name, wanted in asked.items()):
            return
        for name, wanted in asked.items():
            limit = self._machines.most(name)
            if wanted > limit:
                which = "this" if limit == self._limits.get(name, 0) else "the largest"
                offered = f"{which} machine offers {room.say(name, limit)}"
                raise Forbidden(f"asks for {room.say(name, wanted)}, and {offered}")

    # --- starting -----------------------------------------------------------------------------

    def submit(self, job: Job, directory: str) -> str:
        entry = f"{self._running}/{job.name}"
        try:
            os.makedirs(self._running, 0o700, exist_ok=True)
            self._write_stub()
            with locked(f"{self.pool.directory}/host.lock", wait=True):
                taken = self._find_room(job)
                descriptor = self._enter(entry, taken)
        except OSError as error:
            raise NoRoom(f"its place in the queue cannot be written: {error.strerror}") from None
        try:
            return self._start(job.name, directory, descriptor, taken.gpus)
        except CommandFailed as error:
            os.unlink(entry)
            raise NoRoom(str(error)) from None
        finally:
            os.close(descriptor)

    def _enter(self, entry: str, taken: Taken) -> int:
        """Take the room, and the lock that the job's process will inherit."""
        try:
            descriptor = os.open(entry, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise SubmitUnclear("it is being started already") from None
        try:
            acquire(descriptor, wait=True)
            os.write(descriptor, json.dumps(taken._asdict()).encode())
        except OSError:
            _unlink(entry)
            os.close(descriptor)
            raise
        self._taken[os.path.basename(entry)] = taken
        return descriptor

    def _start(self, name: str, directory: str, descriptor: int, gpus: Sequence[str]) -> str:
        spool = f"{self.pool.directory}/spool"
        stub = [
            "bash",
            self._stub,
            directory,
            spool,
            str(descriptor),
            make_cgroup(self._cgroup(name)),
            *host_options.environment(self._options, gpus),
        ]
        child = command.start(stub, f"{directory}/output", descriptor)
        self._children = [running for running in self._children if running.poll() is None]
        self._children.append(child)
        stat = stat_of(child.pid)  # it cannot be gone: nobody has asked for its exit code
        start = stat.start if stat else 0
        return str(ProcessIdentity(child.pid, start, self._boot, self._machines.name))

    def _write_stub(self) -> None:
        if read(self._stub) != STUB.encode():
            draft = f"{self._stub}.{os.getpid()}"
            with open(draft, "w", encoding="utf-8") as file:
                file.write(STUB)
            os.rename(draft, self._stub)

    def _find_room(self, job: Job) -> Taken:
        """What the job is to have; raises ``NoRoom``."""
        others = self._running_jobs() - {job.name}
        taken = [self._taken[name] for name in others & self._taken.keys()]
        used = room.total(one.amounts for one in taken)
        wanted = room.wanted(job)
        for name, amount in wanted.items():
            free = max(self._limits.get(name, 0) - used.get(name, 0), 0)
            if amount > free:
                raise NoRoom(
                    f"waits for {room.say(name, amount)}: {room.say(name, free)} are free now"
                )
        gpus = self._free_gpus(wanted.get(self._options.gpu_resource, 0), taken)
        return Taken(wanted, gpus, self._machines.name)

    def _free_gpus(self, number: int, taken: Iterable[Taken]) -> list[str]:
        """So many GPUs that no job has: as many as have been counted are there."""
        theirs = {one for other in taken for one in other.gpus}
        return [one for one in self._options.gpus if one not in theirs][:number]

    def _running_jobs(self) -> set[str]:
        """This machine's jobs that take room; those whose directory is gone are ended first."""
        names = self._own_entries(set(os.listdir(self._running)))
        lost = {n for n in names if not os.path.exists(f"{self.pool.directory}/jobs/{n}")}
        gone: set[str] = set()
        if lost:
            suspects = {name: Suspect(None, self._cgroup(name)) for name in lost}
            gone = self.end(suspects)
        for name in gone:
            _unlink(f"{self._running}/{name}")
        return names - gone

    def _own_entries(self, names: set[str]) -> set[str]:
        """Those that this machine has made, and those that cannot be read."""
        known = {name: taken for name, taken in self._taken.items() if name in names}
        for name in names - known.keys():
            taken = room.parse_taken(read(f"{self._running}/{name}"))
            if taken is not None:
                known[name] = taken
        self._taken = known
        return {name for name in names if name not in known or self._is_here(known[name].machine)}

    def _is_here(self, machine: str) -> bool:
        return machine in ("", self._machines.name)

    # --- looking --------------------------------------------------------------------------------

    def find(self, names: Sequence[str]) -> dict[str, str]:
        found = {}
        for name in names:
            process = self._begun(name)
            if process is not None:
                found[name] = str(process)
        return found

    def _begun(self, name: str) -> Optional[ProcessIdentity]:
        """The process of a job that was started; None for one that certainly was not."""
        entry, begun = f"{self._running}/{name}", f"{self.pool.directory}/jobs/{name}/begun"
        end = time.monotonic() + BEGIN_TIMEOUT_S
        while True:
            free = self._is_free(entry)
            said = read(begun)
            if said is not None and (said.endswith(b"\n") or free):
                # An empty one: killed, or the disk was full, between these two steps.
                return parse_identity(said.decode(errors="replace")) or ProcessIdentity(0, 0, "-")
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
            return acquire(descriptor, wait=False)
        finally:
            os.close(descriptor)

    def poll(self, refs: Sequence[JobRef]) -> Mapping[str, Observation]:
        self._children = [child for child in self._children if child.poll() is None]
        return {ref.name: self._sight(ref) for ref in refs}

    def _sight(self, ref: JobRef) -> Observation:
        process = parse_identity(ref.native)
        if not self._is_ours(ref):
            # What that machine has written down of its end is the job's end.
            over = os.path.exists(f"{ref.directory}/final")
            return Observation(ENDED, exit_code=1) if over else Observation(STARTED)
        if process is not None and is_alive(process, self._boot):
            return Observation(STARTED)
        why = "its process was killed"
        if process is not None and process.boot != self._boot:
            why = "the machine was restarted" if process.pid else "it was killed while it began"
        return Observation(ENDED, message=why, exit_code=1)

    # --- ending ---------------------------------------------------------------------------------

    def cancel(self, refs: Sequence[JobRef], kill: bool) -> None:
        """Those of other machines are ended there: the wish stands in the pool's directory."""
        here = [ref for ref in refs if self._is_ours(ref)]
        if kill:
            self.end({ref.name: self._suspect(ref) for ref in here})
            return
        for ref in here:
            process = parse_identity(ref.native)
            if process is not None:
                send(process, self._boot, signal.SIGTERM)

    def end(self, suspects: Mapping[str, Suspect]) -> set[str]:
        """Kill whatever is left of these jobs; the names of those of which nothing is."""
        return kill_all(suspects, self._boot)

    def clean(self, refs: Sequence[JobRef]) -> set[str]:
        self._children = [child for child in self._children if child.poll() is None]
        here = [ref for ref in refs if self._is_ours(ref)]
        over = {t.name: self._suspect(t) for t in here if not self._still_ends(t)}
        clean = self.end(over) if over else set()
        for name in clean:
            remove_cgroup(over[name].cgroup)
            _unlink(f"{self._running}/{name}")
            self._lingering.pop(name, None)
        return clean | {ref.name for ref in refs if self._has_left(ref)}

    def _has_left(self, ref: JobRef) -> bool:
        """Whether another machine is done with it, or nobody waits for that any more."""
        if self._is_ours(ref):
            return False
        entry = f"{self._running}/{ref.name}"
        return not (os.path.exists(entry) and os.path.exists(ref.directory))

    def _is_ours(self, ref: JobRef) -> bool:
        """Whether this machine has started it."""
        process = parse_identity(ref.native)
        return process is None or self._is_here(process.machine)

    def _still_ends(self, ref: JobRef) -> bool:
        """A script that has said its last word ends by itself within a moment."""
        process = parse_identity(ref.native)
        if process is None or not is_alive(process, self._boot):
            return False
        since = self._lingering.setdefault(ref.name, time.monotonic())
        return time.monotonic() - since < LINGER_S

    def _suspect(self, ref: JobRef) -> Suspect:
        return Suspect(parse_identity(ref.native), self._cgroup(ref.name))

    def _cgroup(self, name: str) -> str:
        return f"{self._cgroups}/interlink-{name}" if self._cgroups else ""


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
