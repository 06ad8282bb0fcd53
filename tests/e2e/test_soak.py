"""Users come and go at random while faults happen; in the end all counts are equal, memory flat.

``E2E_SOAK_S`` says for how many seconds (a night wants 1800 or more), ``E2E_SEED`` begins the same
row of faults again. None of our programs is killed here, so that what each has of memory at the
end can be held against what it had after the first third.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import TimeoutExpired
from typing import NamedTuple

import pytest

from tests.e2e.conftest import SITES
from tests.e2e.ends import ended, is_slurms_own, there_twice
from tests.e2e.remains import remains
from tests.e2e.trouble import Fault, Trouble, cut_off, frozen, killed, killed_at
from tests.e2e.users import User
from tests.support.kueue_api import Refused
from tests.support.kueue_bed import KueueBed, until

logger = logging.getLogger(__name__)
LENGTH_S = float(os.environ.get("E2E_SOAK_S", "120"))
SEED = int(os.environ.get("E2E_SEED", "0")) or random.randrange(1, 10**6)
PEOPLE = 3
AT_ONCE = 6  # jobs of one user that have not been deleted
PAUSE_S = (5.0, 20.0)  # between faults
GROWTH, GROWTH_MB = (
    1.15,
    10.0,
)  # what memory may grow by, besides what is measured differently each time
FAILS = 41


class Told(NamedTuple):
    """A job as its user has created it."""

    name: str
    code: int
    line: str

    @property
    def condition(self) -> str:
        return "Failed" if self.code else "Complete"


class Person:
    """Creates jobs, looks at them, and deletes some, at random."""

    def __init__(self, user: User, seed: int) -> None:
        self.user = user
        self.jobs: list[Told] = []
        self.uids: set[str] = set()
        self.did: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._count = 0

    def live(self, over: threading.Event) -> None:
        """Until it is over. While things are broken, kubectl may be refused."""
        while not over.wait(self._random.uniform(0.2, 2)):
            acts = [self._log, self._describe, self._follow]
            acts += [self._create] * 3 if len(self.jobs) < AT_ONCE else [self._delete] * 3
            act = self._random.choice(acts)
            try:
                act()
            except (Refused, TimeoutExpired):
                self.did[f"{act.__name__} refused"] += 1
            else:
                self.did[act.__name__] += 1

    def _create(self) -> None:
        self._count += 1
        name = f"s{self._count}"
        job = Told(name, self._random.choice((0, 0, FAILS)), f"{name} of {self.user.name}")
        sleep = self._random.choice((0, 1, 3, 10))
        self.jobs.append(job)  # a refused one may be there all the same
        self.user.job(name, f"echo {job.line}; sleep {sleep}; exit {job.code}")

    def _delete(self) -> None:
        self._note()
        job = self._random.choice(self.jobs)
        force = ("--grace-period=0", "--force") if self._random.random() < 0.2 else ()
        self.user.kubectl("delete", "job", job.name, "--wait=false", "--ignore-not-found", *force)
        self.jobs.remove(job)

    def _log(self) -> None:
        self._of_one("logs")

    def _follow(self) -> None:
        self._of_one("logs", "--follow", "--pod-running-timeout=5s")

    def _describe(self) -> None:
        self._of_one("describe")

    def _of_one(self, verb: str, *options: str) -> None:
        if self.jobs:
            name = self._random.choice(self.jobs).name
            self.user.kubectl(verb, f"job/{name}", *options, seconds=20)

    def _note(self) -> None:
        """Pods that are there, so that they can be looked for when they are gone."""
        self.uids |= {pod["metadata"]["uid"] for pod in self.user.get("pods")["items"]}

    def wrong(self, twice: set[str]) -> dict[str, str]:
        """Jobs that did not end, or say, what they should, for any reason but Slurm's own."""
        self._note()
        there = {job["metadata"]["name"] for job in self.user.get("jobs")["items"]}
        found = {}
        for job in self.jobs:
            if job.name not in there:
                continue  # its creation was refused
            condition = self.user.until_over(job.name, 300)
            (pod, *_) = map(ended, self.user.pods_of(job.name))
            if pod.code != job.code and is_slurms_own(pod, twice):
                continue
            log = until(lambda name=pod.name: self.user.log(name), what="a log")
            if (condition, log) != (job.condition, f"{job.line}\n"):
                found[job.name] = f"{condition}: {pod}: {log}"
        return found


@pytest.fixture
def people(chain: KueueBed) -> Iterator[list[Person]]:
    found = [Person(User(chain, f"s{SEED}-{number}"), SEED + number) for number in range(PEOPLE)]
    yield found
    for person in found:
        person.user.go()


def faults_of(chain: KueueBed) -> list[Fault]:
    """Whatever leaves our programs alive."""
    host, slurm = chain.site("host"), chain.site("slurm")
    return [
        *killed(chain, "nats", "interlink", "virtual-kubelet", "kueue"),
        *killed_at("slurm", slurm, "slurmctld", "slurmd@n2"),
        cut_off("host", host),
        cut_off("slurm", slurm),
        frozen("host", host, "submitter"),
        frozen("slurm", slurm, "slurmctld"),
    ]


def test_users_come_and_go_while_things_break(chain: KueueBed, people: list[Person]) -> None:
    over = threading.Event()
    began = time.monotonic()
    with Trouble(chain, faults_of(chain), SEED, PAUSE_S) as trouble, ThreadPoolExecutor() as pool:
        lives = [pool.submit(person.live, over) for person in people]
        try:
            over.wait(LENGTH_S / 3)
            before = memory_mb(chain)
            over.wait(LENGTH_S - (time.monotonic() - began))
        finally:
            over.set()
        for life in lives:
            life.result()
    # What interLink 0.5 has not got to the plugin, it never tries again before its next start.
    chain.kill("virtual-kubelet")
    chain.start("virtual-kubelet")
    did: Counter[str] = sum((person.did for person in people), Counter())
    said = f"seed {SEED}: {trouble}, users {dict(did)}"
    logger.warning("%s", said)
    twice = there_twice(chain.site("slurm"))
    assert [person.wrong(twice) for person in people] == [{} for _ in people], said
    for person in people:
        person.user.kubectl("delete", "jobs", "--all", "--wait=false")
    until(lambda: not any(left(person.user) for person in people), 180, "the end of all objects")
    uids = set().union(*(person.uids for person in people))
    until(lambda: not remains(chain, SITES, uids), 180, "the end of all at the sites")
    after = memory_mb(chain)
    logger.warning("MB before %s, after %s", before, after)
    grown = {name: mb for name, mb in after.items() if mb > before[name] * GROWTH + GROWTH_MB}
    assert grown == {}, f"{said}: {before}"


def left(user: User) -> list[str]:
    """What there is in a user's namespace of what came and went."""
    kinds = "jobs,pods,workloads.kueue.x-k8s.io"
    return user.kubectl("get", kinds, "--output=name").split()


def memory_mb(chain: KueueBed) -> dict[str, float]:
    """Of each of our programs, of all its processes together."""
    found = {program: chain.memory_mb(program) for program in ("plugin", "operator")}
    for name in SITES:
        pids = chain.site(name).machine("login").processes("submitter")
        found[f"submitter {name}"] = sum(map(resident_mb, pids))
    return found


def resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024
