"""kill -9 at random moments through 500 jobs: none lost, none run twice, none told wrong."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.faults.crowd import Crowd
from tests.support.system import POOL, System, running

pytestmark = pytest.mark.faults
JOBS = 500
PAUSE_S = (0.3, 1.5)
PATIENT = 0.5
VICTIMS = ("plugin", "worker", "submitter0", "submitter1", "nats", "redis")


def kill_one_worker(system: System, chance: random.Random) -> None:
    """gunicorn starts another one by itself."""
    workers = system.processes["plugin"].children()
    if workers:
        os.kill(chance.choice(workers), signal.SIGKILL)


def kill_and_restart(system: System, name: str, chance: random.Random) -> None:
    system.kill(name)
    time.sleep(chance.uniform(0, 1))
    system.start(name)


def _holds_scripts(folder: Path) -> bool:
    return any(b"run_pod" in file.read_bytes() for file in folder.iterdir())


def test_random_kills_of_everything(tmp_path: Path) -> None:
    chance = random.Random()
    options = {"cpu": "64", "memory": "64Gi", "pods": "8"}  # most wait as records of a file
    with running(
        tmp_path, submitters=2, workers=2, redis=True, pool={"resources": options}
    ) as system:
        runs = tmp_path / "runs"
        runs.mkdir()
        crowd = Crowd(system, JOBS, runs)
        threads = crowd.start()
        over = threading.Event()
        killed: list[str] = []

        def kill() -> None:
            moved = -1
            while not over.wait(chance.uniform(*PAUSE_S)):
                # Else a slow machine would do nothing but start what is killed before it is up.
                patient = chance.random() < PATIENT
                while patient and crowd.progress == moved and not over.wait(0.2):
                    continue
                moved = crowd.progress
                victim = (
                    VICTIMS[len(killed)] if len(killed) < len(VICTIMS) else chance.choice(VICTIMS)
                )
                killed.append(victim)
                if victim == "worker":
                    kill_one_worker(system, chance)
                else:
                    kill_and_restart(system, victim, chance)

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        try:
            crowd.until_most_have_ended()
        finally:
            over.set()
            killer.join(60)
        assert set(killed) == set(VICTIMS)
        crowd.finish(threads)
        crowd.check_logs()
        accepted = system.site / POOL / "accepted"
        system.until(lambda: not _holds_scripts(accepted), "what was accepted is overwritten")
