"""The Slurm site of scripts/slurm-site, as tests use it.

    with running(folder) as site:
        job = site.submit("hostname", "--nodes=2")
        site.until(job, "COMPLETED")
        site.kill("n1")

The user's files are in ``site.home``, which is the same path here and on all machines of the site.
``kill``, ``stop``, ``start``, ``freeze``, ``thaw``, ``plug``, ``unplug`` and ``lead_to`` are in
``scripts/lib/slurm/site.py``; ``restore`` makes good whatever they have done.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Optional

from scripts.lib.slurm.files import ACCOUNTS, CENTRE, CENTRE_PORT, USER, USER_ID
from scripts.lib.slurm.machines import all_processes, until
from scripts.lib.slurm.site import OUTSIDE
from tests.support.login_node import PATIENCE_S, REPO, LoginNode, run_script

SCRIPT = REPO / "scripts" / "slurm-site"

__all__ = ["ACCOUNTS", "CENTRE", "CENTRE_PORT", "USER", "USER_ID", "SlurmSite", "running", "until"]


class SlurmSite(LoginNode):
    """One that runs."""

    def everything(self, name: str) -> Sequence[str]:
        return [] if name == OUTSIDE else ["munged", *self.programs(name)]

    # --- commands -------------------------------------------------------------------------------

    def admin(self, *command: str) -> str:
        """What a command of the administrator's says, beside the controller."""
        return self.do("ctl", *command)

    def attempt(self, *command: str, seconds: float = PATIENCE_S) -> tuple[int, str]:
        """The exit code of a command of the user's, and all that it says."""
        done = self.run("login", command, USER, seconds)
        return done.returncode, done.stdout + done.stderr

    # --- jobs -----------------------------------------------------------------------------------

    def submit(self, line: str, *flags: str) -> str:
        """A job of the user's that runs a line of shell; what it says is in ``output``."""
        return self.login("sbatch", "--parsable", *flags, "--wrap", line).strip()

    def output(self, job: str) -> str:
        return (self.home / f"slurm-{job}.out").read_text(errors="replace")

    def show(self, job: str) -> dict[str, str]:
        """What the controller knows of a job."""
        words = self.admin("scontrol", "show", "job", "--oneliner", job).split()
        return {key: value for key, _, value in (word.partition("=") for word in words)}

    def until(self, job: str, *states: str, seconds: float = PATIENCE_S) -> dict[str, str]:
        """Wait for a job to be in one of these states."""

        def look() -> Optional[dict[str, str]]:
            found = self.show(job)
            return found if found["JobState"] in states else None

        found: dict[str, str] = until(look, seconds, f"job {job}: {' '.join(states)}")
        return found

    def until_saved(self) -> None:
        """Wait for the controller to write down what it knows.

        It does so some seconds later; what it has not written down when it dies it has forgotten.
        """
        file = self.directory / "spool" / "ctld" / "job_state"

        def saved() -> int:
            """When; 0 while there is no such file, as for a moment whenever it is new."""
            with contextlib.suppress(FileNotFoundError):
                return file.stat().st_mtime_ns
            return 0

        waiting = [self.submit("true", "--hold")]
        before, again_at = saved(), 0.0

        def is_saved() -> bool:
            """With more changes: one in the second of the last writing it does not write down."""
            nonlocal again_at
            if time.monotonic() > again_at:
                self.login("scancel", waiting.pop() if waiting else self.submit("true", "--hold"))
                again_at = time.monotonic() + 5
            return saved() > before

        until(is_saved, PATIENCE_S, "the controller to save its state")

    def living(self, machine: str, words: str) -> list[int]:
        """Processes of a machine, those in containers too, that have this in their command."""
        space = os.readlink(f"/proc/{self.machine(machine).pid}/ns/uts")
        found = []
        for pid in all_processes():
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
                if words.encode() in command and os.readlink(f"/proc/{pid}/ns/uts") == space:
                    found.append(pid)
        return found

    # --- nodes ----------------------------------------------------------------------------------

    def node_states(self) -> dict[str, str]:
        """In the words of sinfo, without the marks behind them."""
        lines = self.admin("sinfo", "-h", "-N", "-p", "main", "-o", "%N %t").splitlines()
        return {name: state.rstrip("*~#!%$@^-") for name, state in map(str.split, lines)}

    def restore(self) -> None:
        """No jobs, all machines and programs running, all nodes idle."""
        self.restore_parts()
        if self._is_quiet():
            return
        nodes = ",".join(self.nodes)
        lines = (
            f"scancel --full --signal=KILL -u {USER}",
            f"scancel -u {USER}",
            f"scontrol update nodename={nodes} state=resume",
            f"scontrol update nodename={nodes} reason=",
        )
        self.admin("bash", "-c", f"{'; '.join(lines)}; true")
        until(self._is_quiet, PATIENCE_S, "a site without jobs")

    def _is_quiet(self) -> bool:
        """No job is there, and each node waits for one."""
        told = self.admin("bash", "-c", "sinfo -h -N -p main -o %t; squeue -h -o job").split()
        return told == ["idle"] * len(self.nodes)


@contextlib.contextmanager
def running(
    folder: Path,
    nodes: int = 3,
    accounting: bool = True,
    settings: Optional[Mapping[str, str]] = None,
    *,
    podman: bool = False,
) -> Iterator[SlurmSite]:
    """A site that keeps its files in this folder; ``settings`` are changes of slurm.conf."""
    changes = [f"--set={key}={value}" for key, value in (settings or {}).items()]
    options = [f"--nodes={nodes}", *changes, *([] if accounting else ["--no-accounting"])]
    options += ["--podman"] if podman else []
    run_script("slurm-site", "up", str(folder), *options)
    try:
        yield SlurmSite(folder)
    finally:
        run_script("slurm-site", "down", str(folder))
