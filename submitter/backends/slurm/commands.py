"""Slurm's programs, as a pool's options name them, and how Slurm itself is set up."""

from __future__ import annotations

import os
import pwd
import time

from submitter.backends.commands import CommandRunner
from submitter.backends.slurm.options import Options
from submitter.backends.slurm.parsing import TIMES, configuration
from submitter.config.settings import environment_with

# What would change the programs' answers, or our jobs, without our knowing.
_FOREIGN = ("SBATCH_", "SQUEUE_", "SACCT_", "SINFO_", "SCANCEL_", "SALLOC_", "SRUN_", "SLURM_JOB")
_CONFIGURATION_S = 600.0  # how long Slurm's configuration is taken for what it was


class SlurmCommands(CommandRunner):
    """The programs of one pool's Slurm."""

    def __init__(self, options: Options) -> None:
        environment = environment_with({**options.environment, **TIMES}, _FOREIGN)
        super().__init__(options.programs, options.prefix, environment, options.timeout_s)
        self._options = options
        self._configuration: dict[str, str] = {}
        self._configured = 0.0
        self.user = options.user or _user()
        """Whose jobs are asked about."""

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


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
