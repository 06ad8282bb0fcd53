"""kill -9 at random moments, of Slurm's daemons too: none lost, none run twice, none told wrong."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path

from tests.faults.crowd import Crowd, Watched
from tests.faults.killer import Killer
from tests.sites.slurm.site import USER_ID, SlurmSite
from tests.sites.slurm.system import TIMING, SlurmSystem, system_at
from tests.support.system import job_of

JOBS = 200
SUBMITTED = re.compile(r"job=(\S+): submitted ([0-9]+)$", re.MULTILINE)
BROKEN = {"down", "drain", "draining", "drng", "drained"}


def make_good(site: SlurmSite) -> None:
    """Slurm drains a node that has a job twice, and holds that job: its administrator's affair."""
    broken = [name for name, state in site.node_states().items() if state in BROKEN]
    if broken:
        site.admin("scontrol", "update", f"nodename={','.join(broken)}", "state=resume")
    jobs = site.admin("squeue", "-h", "-t", "PENDING", "-o", "%i %r").splitlines()
    held = [job.split()[0] for job in jobs if "held" in job]
    if held:
        site.admin("scontrol", "release", *held)


def had_a_number_twice(system: SlurmSystem, job: Watched) -> bool:
    """Whether Slurm cancelled it for the sake of another job with its number: docs/slurm.md."""
    numbers: dict[str, set[str]] = {}
    for file in system.folder.glob("submitter*.log"):
        for name, number in SUBMITTED.findall(file.read_text()):
            numbers.setdefault(number, set()).add(name)
    shared = [names for names in numbers.values() if job_of(job.pod) in names and len(names) > 1]
    return bool(shared) and "Slurm: CANCELLED: " in job.message


def test_random_kills_of_everything(site: SlurmSite, tmp_path: Path) -> None:
    runs = site.home / "runs"
    runs.mkdir()
    os.chown(runs, USER_ID, USER_ID)
    pool = {"build": {"runtime": {"name": "host"}}, "timing": {**TIMING, "lost_after_s": 20}}
    options = {"submitters": 2, "workers": 2, "pool": pool}
    with system_at(site, tmp_path / "kills", **options) as system:
        crowd = Crowd(system, JOBS, runs, partial(had_a_number_twice, system))
        threads = crowd.start()
        daemons = ["slurmctld", *(f"slurmd@{name}" for name in site.nodes)]
        with Killer(system, daemons, partial(make_good, site)) as killer:
            killer.happen()
            crowd.finish(threads)
        crowd.check_logs()
