"""Two podman hosts as one pool: what they share is the pool's directory, and nothing else."""

from __future__ import annotations

import os
import random
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from templates.job.model import Job
from templates.job.status import ENDED, QUEUED, STARTED
from tests.sites.podman.host import AtTheHost, job_of, running
from tests.support.nats_server import NatsServer
from tests.unit.submitter.conformance import noting, runs, scripts_of
from tests.unit.submitter.rig import Centre, eventually, kill

NAMES = ("firenze-1", "firenze-2")
Pair = dict[str, AtTheHost]  # by the names of their hosts


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """The folder that both hosts see."""
    folder = tmp_path / "first" / "shared"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def pair(shared: Path, nats: NatsServer, centre: Centre) -> Iterator[Pair]:
    """A submitter on each; one job at a time on each."""
    pool = {"options": {"cpu": 2, "memory": "4Gi", "pods": 1}}
    with running(shared.parent, NAMES[0]) as first, running(shared, NAMES[1]) as second:
        first.own(shared.parent)
        both = {n: AtTheHost(nats, shared, h, **pool) for n, h in zip(NAMES, (first, second))}
        for submitter in both.values():
            submitter.until_ready(centre)
        yield both
        kill(both.values())


def host_of(centre: Centre, job: Job) -> str:
    """Where a job runs, once it does."""
    return centre.until(job.name, lambda s: s.containers[0].state.state == "running").node


def offered(centre: Centre) -> dict[str, str]:
    """What the pool has last said of itself."""
    told = [message for kind, message in centre.others if kind == "resources"]
    return dict(told[-1]["quotas"]) if told else {}


def test_the_pool_offers_what_both_have_and_jobs_go_where_there_is_room(
    pair: Pair, centre: Centre
) -> None:
    together = {"cpu": "4000m", "memory": str(8 * 2**30), "pods": "2"}
    eventually(lambda: offered(centre) == together)
    long = [job_of("sleep 1000") for _ in NAMES]
    for job in long:
        centre.create(job)
    hosts = [host_of(centre, job) for job in long]
    assert sorted(hosts) == sorted(NAMES)
    third = job_of("exit 3")
    centre.create(third)
    centre.until(third.name, lambda status: status.phase == QUEUED)
    centre.delete(long[0].name, 0)
    centre.until_gone(long[0].name)
    ended = centre.ended(third.name)
    assert (ended.exit_code, ended.node) == (3, hosts[0])
    refused = centre.create(job_of(resources={"requests": {"cpu": "3"}}))["refused"]
    assert refused["message"].endswith("asks for 3 cpus, and this machine offers 2 cpus")


def test_an_end_that_no_script_told_is_told_by_its_host_to_all(pair: Pair, centre: Centre) -> None:
    job = job_of("sleep 1000")
    centre.create(job)
    mine = pair[host_of(centre, job)]
    directory = mine.directory / "jobs" / job.name
    for pid in scripts_of(directory):
        os.kill(pid, signal.SIGKILL)
    words = centre.ended(job.name).message
    assert "without a record of its end: its process was killed" in words
    eventually(lambda: not mine.host.containers(directory))
    mine.stop(signal.SIGKILL)
    last = centre.ended(job.name)  # in the other one's words
    assert (last.phase, last.message) == (ENDED, words)
    centre.delete(job.name)
    centre.until_gone(job.name)


def test_what_a_host_runs_is_left_to_it_while_its_submitter_is_away(
    pair: Pair, centre: Centre, shared: Path
) -> None:
    job = job_of(f"trap 'echo told >{shared}/told; exit 4' TERM; while :; do sleep 0.1; done")
    centre.create(job)
    mine = pair[host_of(centre, job)]
    (other,) = (submitter for submitter in pair.values() if submitter is not mine)
    mine.stop(signal.SIGKILL)
    assert centre.delete(job.name)["state"] == "cancelling"
    eventually(lambda: f"job={job.name}: told to end" in other.words())
    second = job_of("exit 5")
    centre.create(second)
    assert centre.ended(second.name).exit_code == 5
    status = centre.status(job.name)
    assert status is not None
    assert (status.phase, status.deleting) == (STARTED, True)
    assert not (shared / "told").exists()
    mine.until_ready(centre)
    centre.until_gone(job.name)
    assert (shared / "told").read_text() == "told\n"


def test_killed_at_random_moments_nothing_is_lost_or_run_twice(
    pair: Pair, centre: Centre, shared: Path
) -> None:
    chance = random.Random(uuid.uuid4().int)
    jobs = []
    for number in range(24):
        folder = shared / f"out-{number}"
        folder.mkdir()
        job = job_of(noting(folder, f"exit {number}"))
        jobs.append((number, folder, job))
        assert centre.insist(job) in {"journaled", "known"}
        if number % 4 == 3:
            submitter = chance.choice([*pair.values()])
            time.sleep(chance.uniform(0, 0.3))
            submitter.stop(signal.SIGKILL)
            submitter.until_ready(centre)
    ran_at = set()
    for number, folder, job in jobs:
        ended = centre.ended(job.name)
        assert (ended.exit_code, runs(folder)) == (number, 1)
        ran_at.add(ended.node)
    assert ran_at == set(NAMES)
    for submitter in pair.values():
        eventually(lambda s=submitter: not s.host.containers(s.directory))
