"""The host backend: jobs run on this very machine, as many as fit, in the order they came.

The state is in files, so that jobs outlive the submitter and several submitters may share the
machine. ``running/<job>`` in the pool's directory has the allocation of a job, from before its
start until nothing is left of it. It is locked by an open file which the job's first process
inherits, and closes once it has written its identity into ``begun`` in the job's directory. So a
free lock and a missing ``begun`` mean, for certain, that the job was never started.

Several machines may share a pool's directory: each manages the jobs that it has started, and relies
on the files that the others write about theirs.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Optional

from submitter.backends.base import Backend, JobRef, Observation
from submitter.backends.host import accounting
from submitter.backends.host import options as host_options
from submitter.backends.host.accounting import Allocation
from submitter.backends.host.machines import Machines
from submitter.backends.host.processes import (
    JobProcesses,
    ProcessIdentity,
    find_cgroup_base,
    is_alive,
    kill_all,
    make_cgroup,
    parse_identity,
    read_boot_id,
    read_stat,
    remove_cgroup,
    send_signal,
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
from submitter.common.guarded_files import OddEntry, open_file, read
from submitter.common.nats_request import AskNats, not_connected
from submitter.config.settings import Pool
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
        self._boot = read_boot_id()
        self._cgroups = find_cgroup_base()
        self._running = f"{pool.directory}/running"
        self._stub = f"{pool.directory}/host-stub.sh"
        self._options = host_options.load(pool)
        offer = host_options.read_offer(self._options, pool.resources)
        self._limits = accounting.parse_amounts(offer)
        self._machines = Machines(pool.directory, offer, pool.timing.resources_s)
        self._allocations: dict[str, Allocation] = {}
        self._children: list[command.Child] = []
        self._lingering: dict[str, float] = {}

    @classmethod
    def needs_shared_directory(cls, pool: Pool) -> bool:
        return False

    def capacity(self) -> dict[str, str]:
        return self._machines.read_offer()

    def check(self, job: Job) -> None:
        requested = accounting.requested_amounts(job)
        if all(amount <= self._limits.get(name, 0) for name, amount in requested.items()):
            return
        for name, amount in requested.items():
            limit = self._machines.max_offered(name)
            if amount > limit:
                which = "this" if limit == self._limits.get(name, 0) else "the largest"
                offered = f"{which} machine offers {accounting.describe(name, limit)}"
                raise Forbidden(f"asks for {accounting.describe(name, amount)}, and {offered}")

    # --- submitting ---------------------------------------------------------------------------

    def submit(self, job: Job, directory: str) -> str:
        entry = f"{self._running}/{job.name}"
        try:
            os.makedirs(self._running, 0o700, exist_ok=True)
            self._write_stub()
            with locked(f"{self.pool.directory}/host.lock", wait=True):
                allocation = self._allocate(job)
                descriptor = self._write_entry(entry, allocation)
        except OSError as error:
            raise NoRoom(f"its place in the queue cannot be written: {error.strerror}") from None
        try:
            return self._start(job.name, directory, descriptor, allocation.gpus)
        except CommandFailed as error:
            os.unlink(entry)
            raise NoRoom(str(error)) from None
        finally:
            os.close(descriptor)

    def _write_entry(self, entry: str, allocation: Allocation) -> int:
        """Write the allocation; return the open file with the lock that the job will inherit."""
        try:
            descriptor = os.open(entry, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise SubmitUnclear("it is being started already") from None
        try:
            acquire(descriptor, wait=True)
            os.write(descriptor, json.dumps(allocation._asdict()).encode())
        except OSError:
            _unlink(entry)
            os.close(descriptor)
            raise
        self._allocations[os.path.basename(entry)] = allocation
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
            *host_options.gpu_environment(self._options, gpus),
        ]
        child = command.start(stub, f"{directory}/output", descriptor)
        self._children = [running for running in self._children if running.poll() is None]
        self._children.append(child)
        stat = read_stat(child.pid)  # it exists at least as a zombie: nothing has waited for it
        start = stat.start if stat else 0
        return str(ProcessIdentity(child.pid, start, self._boot, self._machines.name))

    def _write_stub(self) -> None:
        if read(self._stub) != STUB.encode():
            draft = f"{self._stub}.{os.getpid()}"
            with open(draft, "w", encoding="utf-8") as file:
                file.write(STUB)
            os.rename(draft, self._stub)

    def _allocate(self, job: Job) -> Allocation:
        """Return an allocation for the job; raise ``NoRoom`` if too little is free."""
        others = self._running_jobs() - {job.name}
        allocations = [self._allocations[name] for name in others & self._allocations.keys()]
        used = accounting.sum_amounts(one.amounts for one in allocations)
        requested = accounting.requested_amounts(job)
        for name, amount in requested.items():
            free = max(self._limits.get(name, 0) - used.get(name, 0), 0)
            if amount > free:
                free_text = accounting.describe(name, free)
                amount_text = accounting.describe(name, amount)
                raise NoRoom(f"waits for {amount_text}: {free_text} are free now")
        gpus = self._free_gpus(requested.get(self._options.gpu_resource, 0), allocations)
        return Allocation(requested, gpus, self._machines.name)

    def _free_gpus(self, number: int, allocations: Iterable[Allocation]) -> list[str]:
        """Return so many GPUs that no job has; there are enough, as the amounts say."""
        used = {gpu for allocation in allocations for gpu in allocation.gpus}
        return [gpu for gpu in self._options.gpus if gpu not in used][:number]

    def _running_jobs(self) -> set[str]:
        """Return this machine's jobs with an allocation; kill those without a directory first."""
        names = self._read_own_entries(set(os.listdir(self._running)))
        lost = {n for n in names if not os.path.exists(f"{self.pool.directory}/jobs/{n}")}
        gone: set[str] = set()
        if lost:
            jobs = {name: JobProcesses(None, self._cgroup(name)) for name in lost}
            gone = self.kill_jobs(jobs)
        for name in gone:
            _unlink(f"{self._running}/{name}")
        return names - gone

    def _read_own_entries(self, names: set[str]) -> set[str]:
        """Return the entries that this machine has made, and those that cannot be read."""
        entries = {n: allocation for n, allocation in self._allocations.items() if n in names}
        for name in names - entries.keys():
            try:
                allocation = accounting.parse_allocation(read(f"{self._running}/{name}"))
            except OddEntry:
                continue
            if allocation is not None:
                entries[name] = allocation
        self._allocations = entries
        elsewhere = {n for n, one in entries.items() if not self._is_this_machine(one.machine)}
        return names - elsewhere

    def _is_this_machine(self, machine: str) -> bool:
        return machine in ("", self._machines.name)

    # --- polling --------------------------------------------------------------------------------

    def find(self, names: Sequence[str]) -> dict[str, str]:
        found = {}
        for name in names:
            process = self._find_process(name)
            if process is not None:
                found[name] = str(process)
        return found

    def _find_process(self, name: str) -> Optional[ProcessIdentity]:
        """Return the process of a job that was started; None if it certainly was not."""
        entry, begun = f"{self._running}/{name}", f"{self.pool.directory}/jobs/{name}/begun"
        end = time.monotonic() + BEGIN_TIMEOUT_S
        while True:
            free = self._is_unlocked(entry)
            content = read(begun)
            if content is not None and (content.endswith(b"\n") or free):
                # An empty file: the process was killed, or the disk was full, while it was written.
                text = content.decode(errors="replace")
                return parse_identity(text) or ProcessIdentity(0, 0, "-")
            if free:
                _unlink(entry)
                return None
            if time.monotonic() > end:
                raise BackendUnavailable(f"{name} does not begin")
            time.sleep(0.02)

    def _is_unlocked(self, entry: str) -> bool:
        try:
            descriptor = open_file(entry, os.O_RDWR)
        except FileNotFoundError:
            return True
        try:
            return acquire(descriptor, wait=False)
        finally:
            os.close(descriptor)

    def poll(self, refs: Sequence[JobRef]) -> Mapping[str, Observation]:
        self._children = [child for child in self._children if child.poll() is None]
        return {ref.name: self._observe(ref) for ref in refs}

    def _observe(self, ref: JobRef) -> Observation:
        process = parse_identity(ref.native)
        if not self._is_ours(ref):
            # The job has ended when that machine has written its end.
            over = os.path.exists(f"{ref.directory}/final")
            return Observation(ENDED, exit_code=1) if over else Observation(STARTED)
        if process is not None and is_alive(process, self._boot):
            return Observation(STARTED)
        message = "its process was killed"
        if process is not None and process.boot != self._boot:
            message = "the machine was restarted" if process.pid else "it was killed while it began"
        return Observation(ENDED, message=message, exit_code=1)

    # --- ending ---------------------------------------------------------------------------------

    def cancel(self, refs: Sequence[JobRef], kill: bool) -> None:
        """End this machine's jobs: others read the request in the pool's directory."""
        here = [ref for ref in refs if self._is_ours(ref)]
        if kill:
            self.kill_jobs({ref.name: self._processes_of(ref) for ref in here})
            return
        for ref in here:
            process = parse_identity(ref.native)
            if process is not None:
                send_signal(process, self._boot, signal.SIGTERM)

    def kill_jobs(self, jobs: Mapping[str, JobProcesses]) -> set[str]:
        """Kill all processes of these jobs; return the names of jobs of which nothing is left."""
        return kill_all(jobs, self._boot)

    def clean(self, refs: Sequence[JobRef]) -> set[str]:
        self._children = [child for child in self._children if child.poll() is None]
        here = [ref for ref in refs if self._is_ours(ref)]
        over = {ref.name: self._processes_of(ref) for ref in here if not self._is_ending(ref)}
        clean = self.kill_jobs(over) if over else set()
        for name in clean:
            remove_cgroup(over[name].cgroup)
            _unlink(f"{self._running}/{name}")
            self._lingering.pop(name, None)
        return clean | {ref.name for ref in refs if self._is_released(ref)}

    def _is_released(self, ref: JobRef) -> bool:
        """Return whether another machine has cleaned the job, or its directory is gone."""
        if self._is_ours(ref):
            return False
        entry = f"{self._running}/{ref.name}"
        return not (os.path.exists(entry) and os.path.exists(ref.directory))

    def _is_ours(self, ref: JobRef) -> bool:
        """Return whether this machine has started the job."""
        process = parse_identity(ref.native)
        return process is None or self._is_this_machine(process.machine)

    def _is_ending(self, ref: JobRef) -> bool:
        """Return whether the script still has a moment to end by itself."""
        process = parse_identity(ref.native)
        if process is None or not is_alive(process, self._boot):
            return False
        since = self._lingering.setdefault(ref.name, time.monotonic())
        return time.monotonic() - since < LINGER_S

    def _processes_of(self, ref: JobRef) -> JobProcesses:
        return JobProcesses(parse_identity(ref.native), self._cgroup(ref.name))

    def _cgroup(self, name: str) -> str:
        return f"{self._cgroups}/interlink-{name}" if self._cgroups else ""


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
