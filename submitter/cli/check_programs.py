"""Checks of the programs that jobs need, and of the batch system."""

from __future__ import annotations

import re

from submitter.backends import registry
from submitter.backends.base import Backend
from submitter.cli.report import Report
from submitter.common import command
from submitter.common.errors import CommandFailed, SubmitterError
from submitter.common.nats_request import AskNats, not_connected
from submitter.config.settings import Pool
from templates.common.errors import ConfigError, one_line
from templates.site.build_config import KUBERNETES

TIMEOUT_S = 20.0
OLDEST_BASH = (4, 2)


def check(pool: Pool, report: Report, ask: AskNats = not_connected) -> None:
    """Check the programs and the backend of one pool, as far as possible from this machine."""
    _check_bash(pool, report)
    _check_runtime(pool, report)
    _check_backend(pool, report, ask)


def _check_bash(pool: Pool, report: Report) -> None:
    subject, program = f"pool {pool.name}: bash", pool.build.script.bash
    version = _read_version(pool, report, subject, program, "name it in build.script.bash")
    found = re.search(r"version (\d+)\.(\d+)", version)
    if not version:
        return
    if found is None or (int(found[1]), int(found[2])) < OLDEST_BASH:
        message = f"{program} is {version}"
        report.wrong(subject, message, "name bash 4.2 or later in build.script.bash")
    else:
        report.ok(subject, f"{program}: {found[0]}")


def _check_runtime(pool: Pool, report: Report) -> None:
    runtime = pool.build.runtime
    subject = f"pool {pool.name}: runtime"
    if runtime.name == "host":
        report.ok(subject, "none: containers run as plain processes, without their images")
        return
    if runtime.name == KUBERNETES:
        report.ok(subject, "none: pods run in the site's own cluster")
        return
    program = runtime.executable or runtime.name
    version = _read_version(
        pool, report, subject, program, "install it, or name it in build.runtime.executable"
    )
    if version:
        report.ok(subject, f"{program}: {version}")


def _check_backend(pool: Pool, report: Report, ask: AskNats) -> None:
    subject = f"pool {pool.name}: backend {pool.backend}"
    try:
        backend = registry.make_backend(pool, ask)
        if not _check_findings(pool, backend, report):
            return
        capacity = backend.capacity()
    except ConfigError as error:
        message = str(error).removeprefix(f"pool {pool.name}: ")
        report.wrong(subject, message, "correct it: docs/backends.md has the options")
        return
    except (SubmitterError, OSError) as error:
        report.wrong(subject, str(error), "let the batch system's own commands work for this user")
        return
    offered = ", ".join(f"{name} {amount}" for name, amount in sorted(capacity.items()))
    report.ok(subject, f"offers {offered or 'nothing'}")


def _check_findings(pool: Pool, backend: Backend, report: Report) -> bool:
    """Report the findings of the backend; return whether none of them is a mistake."""
    mistakes = report.mistakes
    for finding in backend.examine():
        subject = f"pool {pool.name}: {finding.subject}"
        if finding.hint:
            report.wrong(subject, finding.message, finding.hint)
        elif finding.uncertain:
            report.note(subject, finding.message)
        else:
            report.ok(subject, finding.message)
    return report.mistakes == mistakes


def _read_version(pool: Pool, report: Report, subject: str, program: str, hint: str) -> str:
    """Return the first line of a program's version; empty, and reported, if it cannot be run."""
    try:
        version = command.run([program, "--version"], TIMEOUT_S)
    except CommandFailed as error:
        if registry.load_class_or_base(pool).runs_here:
            report.wrong(subject, str(error), hint)
        else:
            report.note(subject, f"{error}, here; the nodes need it")
        return ""
    return one_line(version.partition("\n")[0]) or "of no version"
