"""kill -9 at random moments, HTCondor's daemons too: none lost, run twice or told wrong."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from scripts.lib.condor.site import MASTER
from scripts.lib.slurm.machines import Trouble
from tests.faults.crowd import Crowd, Watched
from tests.faults.killer import Killer
from tests.sites.htcondor.element import options_of
from tests.sites.htcondor.site import RunningSite
from tests.sites.htcondor.system import system_at
from tests.support.site_system import TIMING
from tests.support.system import job_of
from tests.unit.submitter.at_a_site import own_folder

JOBS = 200
STARTD, SCHEDD = "condor_startd@", "condor_schedd@login"
HANGING = (MASTER, "condor_procd", "condor_shared_port")
KILLING_S = 3  # what it may take; HTCondor knows whole seconds
EVICTED = re.compile("Evicted: the job ended at ([^ ]+)Z ")
UNKNOWN_THERE = "Job not found at execution machine"
LEASE_S = "60"  # how long HTCondor keeps a job whose schedd or machine does not answer
WHERE = ("LastRemoteHost", "JobStartDate")


@pytest.fixture(params=["the_site", "the_apart_site", "the_element"])
def site(request: pytest.FixtureRequest) -> Iterator[RunningSite]:
    """Each kind of site, as it was before the test."""
    one: RunningSite = request.getfixturevalue(request.param)
    yield one
    one.restore()


def options_at(site: RunningSite) -> dict[str, Any]:
    """Of the pool: nothing depends on a stream that ends with its schedd, and a job outlives it."""
    more = {"stream": False, "commands": {"job_lease_duration": LEASE_S}}
    if site.facts["element"]:
        return options_of(site.home, **more)
    return {"shared": site.facts["shared"], **more}


def went_with(site: RunningSite, killer: Killer, runs: Path, job: Watched) -> bool:
    """Whether HTCondor ended it with a daemon: condor_master kills what a dead startd has started.

    A schedd takes the jobs along that it was about to start, and cannot know that they never began.
    """
    evicted = EVICTED.match(job.message)
    if not evicted:
        return False
    about = ["-constraint", f'InterlinkJob == "{job_of(job.pod)}"', "-af", *WHERE]
    said = site.admin("condor_q", "-allusers", *about) or site.admin("condor_history", *about)
    host, began = said.split()
    ended = datetime.fromisoformat(f"{evicted[1]}+00:00").timestamp()
    guilty = {f"{STARTD}{host.partition('@')[2].partition('.')[0]}"}
    if UNKNOWN_THERE in job.message and not (runs / str(job.number)).exists():
        guilty.add(SCHEDD)
    first, last = int(began) - KILLING_S, ended + 1
    return any(one in guilty and first <= at <= last for at, one in killer.killed)


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
    runs = own_folder(site.home if site.facts["shared"] else site.directory / "witness")
    pool = {"options": options_at(site), "timing": {**TIMING, "lost_after_s": 20}}
    with system_at(site, tmp_path / "kills", submitters=2, workers=2, pool=pool) as system:
        startds = [f"{STARTD}{name}" for name in site.nodes]
        daemons = [SCHEDD, "condor_negotiator@ctl", *startds]
        killer = Killer(system, daemons, revive=partial(revive, site))
        crowd = Crowd(system, JOBS, runs, partial(went_with, site, killer, runs))
        threads = crowd.start()
        with killer:
            killer.happen()
            crowd.finish(threads)
        crowd.check_logs()
    assert {victim for _, victim in killer.killed} == set(daemons)
