"""Slurm's programs, started as the site wants it; no answer is ``BackendUnavailable``."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Iterable, Sequence
from typing import Optional

from submitter import command
from submitter.backends.slurm_options import Options
from submitter.backends.slurm_parsing import TIMES, configuration
from submitter.errors import BackendUnavailable, CommandFailed
from submitter.settings import environment_with

# What would change the programs' answers, or our jobs, without our knowing.
_FOREIGN = ("SBATCH_", "SQUEUE_", "SACCT_", "SINFO_", "SCANCEL_", "SALLOC_", "SRUN_", "SLURM_JOB")
_CONFIGURATION_S = 600.0  # how long Slurm's configuration is taken for what it was
_AT_ONCE = 1000  # job numbers or names on one command line


class Commands:
    """The programs of one pool's Slurm; whatever they are asked blocks."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._programs = options.programs
        self._environment = environment_with({**options.environment, **TIMES}, _FOREIGN)
        self._configuration: dict[str, str] = {}
        self._configured = 0.0
        self._answers_since: Optional[float] = None
        self.user = options.user or _user()
        """Whose jobs are asked about."""

    def run(self, program: str, arguments: Sequence[str], stdin: str = "") -> str:
        """What a program prints; ``CommandFailed`` unless it ended well."""
        argv = [*self._options.prefix, getattr(self._programs, program), *arguments]
        return command.run(argv, self._options.timeout_s, stdin, self._environment)

    def ask(self, program: str, *arguments: str) -> str:
        """The answer to a question that changes nothing."""
        try:
            answer = self.run(program, arguments)
        except CommandFailed as error:
            self._answers_since = None
            raise BackendUnavailable(str(error)) from None
        if self._answers_since is None:
            self._answers_since = time.monotonic()
        return answer

    def answers_for_s(self) -> float:
        """How long it has answered every question, the last one included."""
        return time.monotonic() - self._answers_since if self._answers_since is not None else 0.0

    def configuration(self) -> dict[str, str]:
        """Of ``scontrol show config``."""
        now = time.monotonic()
        if not self._configuration or now - self._configured > _CONFIGURATION_S:
            self._configuration = configuration(self.ask("scontrol", "show", "config"))
            self._configured = now
        return self._configuration

    def has_accounting(self) -> bool:
        """Whether sacct and sacctmgr can say anything."""
        if self._options.accounting != "auto":
            return self._options.accounting == "on"
        storage = self.configuration().get("AccountingStorageType", "")
        return storage.rpartition("/")[2] not in ("", "none", "(null)")


def chunks(items: Iterable[str]) -> list[list[str]]:
    """As many as go on one command line."""
    every = list(items)
    return [every[start : start + _AT_ONCE] for start in range(0, len(every), _AT_ONCE)]


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
