"""Slurm's programs, as a pool's options name them, and Slurm's own configuration."""

from __future__ import annotations

import os
import pwd
import time

from submitter.backends.commands import CommandRunner
from submitter.backends.slurm.options import Options
from submitter.backends.slurm.parsing import TIMES, parse_configuration
from submitter.config.settings import environment_with

# Variables that would change the programs' output, or our jobs.
_FOREIGN = ("SBATCH_", "SQUEUE_", "SACCT_", "SINFO_", "SCANCEL_", "SALLOC_", "SRUN_", "SLURM_JOB")
_CONFIGURATION_CACHE_S = 600.0


class SlurmCommands(CommandRunner):
    """The programs of one pool's Slurm."""

    def __init__(self, options: Options) -> None:
        environment = environment_with({**options.environment, **TIMES}, _FOREIGN)
        super().__init__(options.programs, options.prefix, environment, options.timeout_s)
        self._options = options
        self._configuration: dict[str, str] = {}
        self._configuration_read_at = 0.0
        self.user = options.user or _own_user()
        """The owner of the jobs."""

    def configuration(self) -> dict[str, str]:
        """Return the output of ``scontrol show config``, or a recent one."""
        now = time.monotonic()
        if not self._configuration or now - self._configuration_read_at > _CONFIGURATION_CACHE_S:
            self._configuration = parse_configuration(self.query("scontrol", "show", "config"))
            self._configuration_read_at = now
        return self._configuration

    def has_accounting(self) -> bool:
        """Return whether sacct and sacctmgr can be used."""
        if self._options.accounting != "auto":
            return self._options.accounting == "on"
        storage = self.configuration().get("AccountingStorageType", "")
        return storage.rpartition("/")[2] not in ("", "none", "(null)")


def _own_user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
