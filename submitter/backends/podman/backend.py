"""The podman backend: the host backend, for jobs in containers of podman without root.

Containers that a job's script has not removed, because it was killed or the machine was restarted,
are found by the labels that the script gives to containers and pods: their job, and its directory.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from submitter.backends.base import Finding
from submitter.backends.host.backend import HostBackend
from submitter.backends.host.processes import JobProcesses
from submitter.common import command
from submitter.common.errors import BackendUnavailable, CommandFailed
from submitter.common.nats_request import AskNats, not_connected
from submitter.config.settings import Pool
from templates.common.errors import ConfigError

LABEL = "interlink.directory"
INFO = "{{.Host.Security.Rootless}} {{.Host.CgroupsVersion}} {{.Host.CgroupControllers}}"
CHECK_TIMEOUT_S = 20.0
TIMEOUT_S = 60.0
REMOVAL_TIMEOUT_S = 300.0
FORCE = ("--force", "--ignore", "--time", "0")


class Leftover(NamedTuple):
    """A container or pod with our label."""

    identity: str
    directory: str  # of its job


class PodmanBackend(HostBackend):
    """The machine that the submitter runs on, with podman."""

    def __init__(self, pool: Pool, ask: AskNats = not_connected) -> None:
        super().__init__(pool, ask)
        runtime = pool.build.runtime
        if runtime.name != "podman":
            where = f"pool {pool.name}: build.runtime.name"
            raise ConfigError(where, f"must be podman, as the backend is, not {runtime.name}")
        self._program = runtime.executable or "podman"

    def kill_jobs(self, jobs: Mapping[str, JobProcesses]) -> set[str]:
        clean = super().kill_jobs(jobs)
        self._remove({f"{self.pool.directory}/jobs/{name}" for name in clean})
        return clean

    def tidy(self) -> None:
        """Remove containers of jobs of this pool: their label has the job's directory."""
        jobs = f"{self.pool.directory}/jobs/"
        leftovers = (*self._containers(), *self._pods())
        gone = {one.directory for one in leftovers if one.directory.startswith(jobs)}
        self._remove({directory for directory in gone if not os.path.exists(directory)})

    # --- checks ---------------------------------------------------------------------------------

    def examine(self) -> Iterator[Finding]:
        """Yield findings on podman as this user runs it; none if it is not installed."""
        if shutil.which(self._program) is None:
            return
        try:
            output = command.run([self._program, "info", "--format", INFO], CHECK_TIMEOUT_S)
        except CommandFailed as error:
            hint = "let podman info work for this user: docs/podman.md"
            yield Finding("podman", str(error), hint=hint)
            return
        rootless, version, controllers = f"{output.strip()}  ".split(" ", 2)
        if rootless != "true":
            yield Finding("podman", "runs as root", hint="run the submitter as an ordinary user")
        yield _check_limits(version, controllers)
        network = self.pool.build.podman.network
        if network not in ("", "host"):
            yield self._try_pod(network)

    def _try_pod(self, network: str) -> Finding:
        """Create a pod as jobs with several containers do, and start it."""
        subject, name = f"network {network}", f"interlink-check-{os.getpid()}"
        share = ["--share", "net,uts,ipc", f"--network={network}"]
        pod = [self._program, "pod"]
        try:
            command.run([*pod, "create", "--name", name, *share], CHECK_TIMEOUT_S)
            try:
                command.run([*pod, "start", name], CHECK_TIMEOUT_S)
            finally:
                command.run([*pod, "rm", "--force", "--time", "0", name], CHECK_TIMEOUT_S)
        except CommandFailed as error:
            hint = "install catatonit and passt, or say podman.network: host"
            return Finding(subject, str(error), hint=hint)
        return Finding(subject, "a pod was made, started and removed")

    # --- podman's own commands ------------------------------------------------------------------

    def _containers(self) -> list[Leftover]:
        return self._list("ps", "--all")

    def _pods(self) -> list[Leftover]:
        return self._list("pod", "ps")

    def _list(self, *arguments: str) -> list[Leftover]:
        """List everything with our label by one command."""
        template = f'{{{{.ID}}}} {{{{index .Labels "{LABEL}"}}}}'
        options = ["--filter", f"label={LABEL}", "--format", template]
        output = self._run(TIMEOUT_S, *arguments, *options)
        lines = [line.partition(" ") for line in output.splitlines()]
        return [Leftover(identity, directory) for identity, _, directory in lines if directory]

    def _remove(self, directories: set[str]) -> None:
        """Remove what belongs to these jobs: pods first, as their containers go with them."""
        if not directories:
            return
        pods = _select_ids(self._pods(), directories)
        if pods:
            self._run(REMOVAL_TIMEOUT_S, "pod", "rm", *FORCE, *pods)
        containers = _select_ids(self._containers(), directories)
        if containers:
            self._run(REMOVAL_TIMEOUT_S, "rm", *FORCE, "--volumes", *containers)

    def _run(self, timeout_s: float, *arguments: str) -> str:
        try:
            return command.run([self._program, *arguments], timeout_s)
        except CommandFailed as error:
            raise BackendUnavailable(str(error)) from None


def _check_limits(version: str, controllers: str) -> Finding:
    kept = [name for name in ("memory", "cpu") if name in re.findall(r"\w+", controllers)]
    if len(kept) == 2:
        message = f"cgroups {version} keep containers to their memory and cpu limits"
        return Finding("podman", message)
    message = f"cgroups {version} here limit {' and '.join(kept) or 'nothing'}"
    hint = "memory is watched instead: docs/podman.md says how to change it"
    return Finding("podman", f"{message}; {hint}", uncertain=True)


def _select_ids(left: Iterable[Leftover], directories: set[str]) -> list[str]:
    return [one.identity for one in left if one.directory in directories]
