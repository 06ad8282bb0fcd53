"""Whether the programs that jobs need are there, and the batch system answers."""

from __future__ import annotations

import os
import re

from submitter import backends, command
from submitter.asking_nats import AskNats, nobody
from submitter.backends.base import Backend
from submitter.errors import BackendUnavailable, CommandFailed, SubmitterError
from submitter.reporting import Report
from submitter.settings import Pool
from templates.build_config import KUBERNETES
from templates.errors import ConfigError, one_line

TIMEOUT_S = 20.0
OLDEST_BASH = (4, 2)


def check(pool: Pool, report: Report, ask: AskNats = nobody) -> None:
    """The programs of one pool, as far as they can be tried from this machine."""
    _check_bash(pool, report)
    _check_runtime(pool, report)
    _check_backend(pool, report, ask)


def _check_bash(pool: Pool, report: Report) -> None:
    what, program = f"pool {pool.name}: bash", pool.build.script.bash
    said = _ask(pool, report, what, program, "name it in build.script.bash")
    found = re.search(r"version (\d+)\.(\d+)", said)
    if not said:
        return
    if found is None or (int(found[1]), int(found[2])) < OLDEST_BASH:
        words = f"{program} is {said}"
        report.wrong(what, words, "name bash 4.2 or later in build.script.bash")
    else:
        report.ok(what, f"{program}: {found[0]}")


def _check_runtime(pool: Pool, report: Report) -> None:
    runtime = pool.build.runtime
    what = f"pool {pool.name}: runtime"
    if runtime.name == "host":
        report.ok(what, "none: containers run as plain processes, without their images")
        return
    if runtime.name == KUBERNETES:
        report.ok(what, "none: pods run in the site's own cluster")
        return
    program = runtime.executable or runtime.name
    said = _ask(pool, report, what, program, "install it, or name it in build.runtime.executable")
    if said:
        report.ok(what, f"{program}: {said}")
        if pool.backend == "podman":
            _check_podman(pool, program, report)


def _check_podman(pool: Pool, program: str, report: Report) -> None:
    """What podman can do as this user, on the very machine where it has to."""
    what = f"pool {pool.name}: podman"
    template = "{{.Host.Security.Rootless}} {{.Host.CgroupsVersion}} {{.Host.CgroupControllers}}"
    try:
        told = command.run([program, "info", "--format", template], TIMEOUT_S)
    except CommandFailed as error:
        report.wrong(what, str(error), "let podman info work for this user: docs/podman.md")
        return
    rootless, version, controllers = f"{told.strip()}  ".split(" ", 2)
    if rootless != "true":
        report.wrong(what, "runs as root", "run the submitter as an ordinary user")
    kept = [name for name in ("memory", "cpu") if name in re.findall(r"\w+", controllers)]
    if len(kept) == 2:
        report.ok(what, f"cgroups {version} keep containers to their memory and cpu limits")
    else:
        words = f"cgroups {version} here limit {' and '.join(kept) or 'nothing'}"
        report.note(
            what, f"{words}; memory is watched instead: docs/podman.md says how to change it"
        )
    network = pool.build.podman.network
    if network not in ("", "host"):
        _try_pod(f"pool {pool.name}: network {network}", program, network, report)


def _try_pod(what: str, program: str, network: str, report: Report) -> None:
    """Make a pod as jobs with several containers do, and start it."""
    name = f"interlink-check-{os.getpid()}"
    share = ["--share", "net,uts,ipc", f"--network={network}"]
    try:
        command.run([program, "pod", "create", "--name", name, *share], TIMEOUT_S)
        try:
            command.run([program, "pod", "start", name], TIMEOUT_S)
        finally:
            command.run([program, "pod", "rm", "--force", "--time", "0", name], TIMEOUT_S)
    except CommandFailed as error:
        report.wrong(what, str(error), "install catatonit and passt, or say podman.network: host")
    else:
        report.ok(what, "a pod was made, started and removed")


def _check_backend(pool: Pool, report: Report, ask: AskNats) -> None:
    what = f"pool {pool.name}: backend {pool.backend}"
    try:
        backend = backends.make(pool, ask)
        if not _is_known(pool, backend, report):
            return
        offer = backend.capacity()
    except ConfigError as error:
        words = str(error).removeprefix(f"pool {pool.name}: ")
        report.wrong(what, words, "correct it: docs/backends.md has the options")
        return
    except (SubmitterError, OSError) as error:
        report.wrong(what, str(error), "let the batch system's own commands work for this user")
        return
    offers = ", ".join(f"{name} {amount}" for name, amount in sorted(offer.items()))
    report.ok(what, f"offers {offers or 'nothing'}")


def _is_known(pool: Pool, backend: Backend, report: Report) -> bool:
    """Whether the batch system knows us, as far as we can tell."""
    what = f"pool {pool.name}: token"
    try:
        words = backend.known_by()
    except BackendUnavailable as error:
        report.wrong(what, str(error), f"see tokens in docs/{pool.backend}.md")
        return False
    if words:
        report.ok(what, words)
    return True


def _ask(pool: Pool, report: Report, what: str, program: str, mend: str) -> str:
    """The first line of what a program says of its version; empty when it cannot be asked."""
    try:
        said = command.run([program, "--version"], TIMEOUT_S)
    except CommandFailed as error:
        if pool.backend in ("host", "podman"):
            report.wrong(what, str(error), mend)
        else:
            report.note(what, f"{error}, here; the nodes need it")
        return ""
    return one_line(said.partition("\n")[0]) or "of no version"
