"""kill -9 at random moments, HTCondor's daemons too: none lost, run twice or told wrong."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

from scripts.lib.condor_site import MASTER
from scripts.lib.slurm_machines import Trouble
from templates.results import fold, parse_lines
from tests.condor_site import USER_ID, RunningSite
from tests.condor_system import CondorSystem, system_at
from tests.faults.crowd import Crowd, Watched
from tests.faults.killer import Killer
from tests.site_system import TIMING

JOBS = 200
STARTD = "condor_startd@"
HANGING = (MASTER, "condor_procd", "condor_shared_port")
EVICTED = "Evicted: the job ended at "


def went_with_its_machine(system: CondorSystem, killer: Killer, job: Watched) -> bool:
    """Whether HTCondor ended it with a startd: condor_master kills what a dead one has started."""
    if not job.message.startswith(EVICTED):
        return False
    file = system.directory(job.pod) / "records"
    state = fold(parse_lines(file.read_bytes() if file.exists() else b""))
    if not state.started_ms:  # it had a machine, and had not yet begun
        return any(victim.startswith(STARTD) for _, victim in killer.killed)
    began = state.started_ms / 1000
    return any(victim == f"{STARTD}{state.node}" and at > began for at, victim in killer.killed)


def revive(site: RunningSite, victim: str) -> None:
    """Start it again; where condor_master hangs, as an administrator does.

    What dies while it talks to condor_procd can leave that, and condor_master with it, without a
    next word.
    """
    try:
        site.start(victim)
    except Trouble:
        machine = victim.partition("@")[2]
        for program in HANGING:
            for pid in site.machine(machine).processes(program):
                os.kill(pid, signal.SIGKILL)
        site.start(f"{MASTER}@{machine}")
        site.start(victim)


def test_random_kills_of_everything(site: RunningSite, tmp_path: Path) -> None:
    runs = site.home / "runs"
    runs.mkdir()
    os.chown(runs, USER_ID, USER_ID)
    pool = {"timing": {**TIMING, "lost_after_s": 20}}
    with system_at(site, tmp_path / "kills", submitters=2, workers=2, pool=pool) as system:
        startds = [f"{STARTD}{name}" for name in site.nodes]
        daemons = ["condor_schedd@login", "condor_negotiator@ctl", *startds]
        killer = Killer(system, daemons, revive=partial(revive, site))
        crowd = Crowd(system, JOBS, runs, partial(went_with_its_machine, system, killer))
        threads = crowd.start()
        with killer:
            killer.happen()
            crowd.finish(threads)
        crowd.check_logs()
    assert {victim for _, victim in killer.killed} == set(daemons)
