"""kill -9 at random moments, of Slurm's daemons too: none lost, none run twice, none told wrong."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import threading
import time
from functools import partial
from pathlib import Path

from scripts.lib.slurm_machines import Trouble
from tests.faults.crowd import Crowd, Watched
from tests.slurm_site import USER_ID, SlurmSite
from tests.slurm_system import TIMING, SlurmSystem, system_at
from tests.system import job_of

JOBS = 200
ROUNDS = 2  # in each of which everything is killed once
PAUSE_S = (0.5, 2.5)
SUBMITTED = re.compile(r"job=(\S+): submitted ([0-9]+)$", re.MULTILINE)
BROKEN = {"down", "drain", "draining", "drng", "drained"}


class Faults:
    """Kills one thing after the other, and is the administrator who makes good what is left."""

    def __init__(self, system: SlurmSystem) -> None:
        self._system, self._site = system, system.slurm
        self._chance = random.Random()
        self._over = threading.Event()
        self._repairing = threading.Thread(target=self._repair, daemon=True)

    def __enter__(self) -> Faults:
        self._repairing.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._repairing.join(60)

    def happen(self) -> None:
        """Kill; everything runs again afterwards."""
        nodes = [f"slurmd@{name}" for name in self._site.nodes]
        daemons = ["slurmctld", *nodes]
        victims = ["plugin", "worker", "submitter0", "submitter1", "nats", *daemons]
        for victim in (
            v for _ in range(ROUNDS) for v in self._chance.sample(victims, len(victims))
        ):
            time.sleep(self._chance.uniform(*PAUSE_S))
            if victim in daemons:
                self._site.kill(victim)
                time.sleep(self._chance.uniform(0, 2))
                self._site.start(victim)
            elif victim == "worker":
                for worker in self._system.processes["plugin"].children()[:1]:
                    os.kill(worker, signal.SIGKILL)
            else:
                self._system.kill(victim)
                time.sleep(self._chance.uniform(0, 1))
                self._system.start(victim)

    def _repair(self) -> None:
        while not self._over.wait(2):
            with contextlib.suppress(Trouble):  # the controller is away: later
                self._make_good()

    def _make_good(self) -> None:
        """Slurm drains a node that has a job twice, and holds that job."""
        broken = [name for name, state in self._site.node_states().items() if state in BROKEN]
        if broken:
            nodes = f"nodename={','.join(broken)}"
            self._site.admin("scontrol", "update", nodes, "state=resume")
        jobs = self._site.admin("squeue", "-h", "-t", "PENDING", "-o", "%i %r").splitlines()
        held = [job.split()[0] for job in jobs if "held" in job]
        if held:
            self._site.admin("scontrol", "release", *held)


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
        with Faults(system) as faults:
            faults.happen()
            crowd.finish(threads)
        crowd.check_logs()
