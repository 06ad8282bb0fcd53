"""Runs pods on this very machine under podman, without root: the host backend, and its containers.

What a job's script has not removed, because it was killed or the machine was restarted, is found
by the labels that the script gives to containers and pods: their job, and its directory.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from submitter.backends.base import Finding
from submitter.backends.host.backend import HostBackend
from submitter.backends.host.processes import Suspect
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


class Left(NamedTuple):
    """A container or a pod that carries our label."""

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

    def end(self, suspects: Mapping[str, Suspect]) -> set[str]:
        clean = super().end(suspects)
        self._remove({f"{self.pool.directory}/jobs/{name}" for name in clean})
        return clean

    def tidy(self) -> None:
        """Other pools of this user keep theirs: a directory says whose job it was."""
        jobs = f"{self.pool.directory}/jobs/"
        told = (*self._containers(), *self._pods())
        gone = {one.directory for one in told if one.directory.startswith(jobs)}
        self._remove({directory for directory in gone if not os.path.exists(directory)})

    # --- what it can do here --------------------------------------------------------------------

    def examine(self) -> Iterator[Finding]:
        """Yield what podman can do as this user, where there is one at all."""
        if shutil.which(self._program) is None:
            return
        try:
            told = command.run([self._program, "info", "--format", INFO], CHECK_TIMEOUT_S)
        except CommandFailed as error:
            hint = "let podman info work for this user: docs/podman.md"
            yield Finding("podman", str(error), hint=hint)
            return
        rootless, version, controllers = f"{told.strip()}  ".split(" ", 2)
        if rootless != "true":
            yield Finding("podman", "runs as root", hint="run the submitter as an ordinary user")
        yield _limits(version, controllers)
        network = self.pool.build.podman.network
        if network not in ("", "host"):
            yield self._try_pod(network)

    def _try_pod(self, network: str) -> Finding:
        """Make a pod as jobs with several containers do, and start it."""
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

    def _containers(self) -> list[Left]:
        return self._listed("ps", "--all")

    def _pods(self) -> list[Left]:
        return self._listed("pod", "ps")

    def _listed(self, *what: str) -> list[Left]:
        """One question, however many there are."""
        template = f'{{{{.ID}}}} {{{{index .Labels "{LABEL}"}}}}'
        said = self._ask(TIMEOUT_S, *what, "--filter", f"label={LABEL}", "--format", template)
        lines = [line.partition(" ") for line in said.splitlines()]
        return [Left(identity, directory) for identity, _, directory in lines if directory]

    def _remove(self, directories: set[str]) -> None:
        """Pods first: they take their containers along."""
        if not directories:
            return
        pods = _of(self._pods(), directories)
        if pods:
            self._ask(REMOVAL_TIMEOUT_S, "pod", "rm", *FORCE, *pods)
        containers = _of(self._containers(), directories)
        if containers:
            self._ask(REMOVAL_TIMEOUT_S, "rm", *FORCE, "--volumes", *containers)

    def _ask(self, timeout_s: float, *words: str) -> str:
        try:
            return command.run([self._program, *words], timeout_s)
        except CommandFailed as error:
            raise BackendUnavailable(str(error)) from None


def _limits(version: str, controllers: str) -> Finding:
    kept = [name for name in ("memory", "cpu") if name in re.findall(r"\w+", controllers)]
    if len(kept) == 2:
        words = f"cgroups {version} keep containers to their memory and cpu limits"
        return Finding("podman", words)
    words = f"cgroups {version} here limit {' and '.join(kept) or 'nothing'}"
    hint = "memory is watched instead: docs/podman.md says how to change it"
    return Finding("podman", f"{words}; {hint}", uncertain=True)


def _of(left: Iterable[Left], directories: set[str]) -> list[str]:
    return [one.identity for one in left if one.directory in directories]
