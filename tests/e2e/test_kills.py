"""Anything in the chain dies at any moment, and every job runs once and ends as it should.

E2E_JOBS says how many jobs; a longer night asks for more.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.conftest import SITES
from tests.e2e.users import LEAVES, QUEUE, User
from tests.kueue_bed import KueueBed, until

Json = dict[str, Any]
JOBS = int(os.environ.get("E2E_JOBS", "60"))
DATA = "/home/alice/data"
SEED = int(os.environ.get("E2E_SEED", "0")) or random.randrange(1, 10**6)


class Killer:
    """Kills one thing after the other, and lets each come up again, until it is told to stop."""

    def __init__(self, bed: KueueBed, seed: int) -> None:
        self._random = random.Random(seed)
        self._over = threading.Event()
        self.killed: Counter[str] = Counter()
        self._parts: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {}
        for program in ("plugin", "operator", "nats", "interlink", "virtual-kubelet"):
            self._parts[program] = (
                lambda program=program: bed.kill(program),
                lambda program=program: bed.start(program),
            )
        for name, part in (("host", "submitter"), ("slurm", "submitter"), ("slurm", "slurmctld")):
            site = bed.site(name)
            self._parts[f"{part}@{name}"] = (
                lambda site=site, part=part: site.kill(part),
                lambda site=site, part=part: site.start(part),
            )
        self._executor = ThreadPoolExecutor(1)

    def _run(self) -> None:
        while not self._over.wait(self._random.uniform(0.5, 4)):
            name = self._random.choice(sorted(self._parts))
            kill, start = self._parts[name]
            kill()
            self.killed[name] += 1
            time.sleep(self._random.uniform(0, 3))
            start()

    def __enter__(self) -> Killer:
        self._done = self._executor.submit(self._run)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._done.result(180)
        self._executor.shutdown()


def marking(name: str, code: int) -> Json:
    """A Job that leaves a mark of each of its runs at the site, and ends with a code."""
    script = f'sleep 3; mktemp "{DATA}/$HOSTNAME.XXXXXX"; exit {code}'
    container = {
        "name": "main",
        "image": "busybox:1.36",
        "command": ["sh", "-c", script],
        "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}},
        "volumeMounts": [{"name": "data", "mountPath": DATA}],
    }
    ignored = {"onPodConditions": [{"type": "DisruptionTarget"}], "action": "Ignore"}
    pod: Json = {
        "restartPolicy": "Never",
        "containers": [container],
        "tolerations": [LEAVES],
        "terminationGracePeriodSeconds": 1,
        "volumes": [{"name": "data", "hostPath": {"path": DATA}}],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": QUEUE}},
        "spec": {
            "template": {"spec": pod},
            "backoffLimit": 0,
            "podFailurePolicy": {"rules": [ignored]},
        },
    }


@pytest.fixture
def killer(chain: KueueBed) -> Iterator[Killer]:
    found = Killer(chain, SEED)
    yield found


def test_all_jobs_end_as_they_should(chain: KueueBed, user: User, killer: Killer) -> None:
    wanted = {f"k{number}": 3 if number % 7 == 0 else 0 for number in range(JOBS)}
    with killer:
        user.create(*(marking(name, code) for name, code in wanted.items()))
        until(lambda: len(_ended(user)) == JOBS, 60 + 20 * JOBS, f"all jobs' ends (seed {SEED})")
    ended = _ended(user)
    expected = {name: "Failed" if code else "Complete" for name, code in wanted.items()}
    wrong = {name: end for name, end in ended.items() if end != expected[name]}
    marks: Counter[str] = Counter()
    for site in SITES:
        for mark in (chain.site(site).home / "data").iterdir():
            marks[mark.name.rpartition("-")[0]] += 1
    twice = {name: marks[name] for name in wanted if marks[name] > 1}
    assert twice == {}, f"seed {SEED}: {killer.killed}"
    assert wrong == {}, f"seed {SEED}: {killer.killed}"


def _ended(user: User) -> dict[str, str]:
    """Jobs that have ended, and how."""
    return {
        job["metadata"]["name"]: condition["type"]
        for job in user.get("jobs")["items"]
        for condition in job["status"].get("conditions", ())
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True"
    }
