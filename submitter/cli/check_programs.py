"""Whether the programs that jobs need are there, and the batch system answers."""

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


def _check_backend(pool: Pool, report: Report, ask: AskNats) -> None:
    what = f"pool {pool.name}: backend {pool.backend}"
    try:
        backend = registry.make(pool, ask)
        if not _check_findings(pool, backend, report):
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


def _check_findings(pool: Pool, backend: Backend, report: Report) -> bool:
    """Report what the backend itself has to say; return whether nothing of it is wrong."""
    mistakes = report.mistakes
    for finding in backend.examine():
        what = f"pool {pool.name}: {finding.subject}"
        if finding.hint:
            report.wrong(what, finding.message, finding.hint)
        elif finding.uncertain:
            report.note(what, finding.message)
        else:
            report.ok(what, finding.message)
    return report.mistakes == mistakes


def _ask(pool: Pool, report: Report, what: str, program: str, mend: str) -> str:
    """The first line of what a program says of its version; empty when it cannot be asked."""
    try:
        said = command.run([program, "--version"], TIMEOUT_S)
    except CommandFailed as error:
        if registry.known_class(pool).runs_here:
            report.wrong(what, str(error), mend)
        else:
            report.note(what, f"{error}, here; the nodes need it")
        return ""
    return one_line(said.partition("\n")[0]) or "of no version"
