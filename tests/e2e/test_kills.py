"""kill -9 of anything in the chain under 300 jobs: each ends as it should, no pod runs twice.

``E2E_JOBS`` says how many jobs, ``E2E_SEED`` begins the same row of kills again.
"""

from __future__ import annotations

import logging
import os
import random
import time
from collections import Counter
from typing import Any, NamedTuple

import pytest

from tests.e2e.conftest import SITES
from tests.e2e.ends import Ended, ended, is_slurms_own, there_twice
from tests.e2e.remains import remains
from tests.e2e.sites import DATA
from tests.e2e.trouble import CHAIN, Trouble, killed, killed_at
from tests.e2e.users import LEAVES, QUEUE, VIRTUAL_NODE, User
from tests.support.kueue_bed import KueueBed, until

logger = logging.getLogger(__name__)
Json = dict[str, Any]
JOBS = int(os.environ.get("E2E_JOBS", "300"))
SEED = int(os.environ.get("E2E_SEED", "0")) or random.randrange(1, 10**6)
AT_ONCE = 50  # Jobs in one call of kubectl
FAILS = 41
STUCK_S = 240  # longer than any time-out of any program
# After which a person starts the virtual kubelet anew, and how often: see docs/limits.md.
FORGOTTEN_S = 40
NEW_STARTS = 12
# What an exit code that is none of the job's own says: something has kept it from running.
LOST = {"operator": "NotIn", "values": [FAILS]}


class Wanted(NamedTuple):
    """What a Job must come to."""

    number: int

    @property
    def name(self) -> str:
        return f"k{self.number}"

    @property
    def code(self) -> int:
        return FAILS if self.number % 7 == 0 else 0

    @property
    def condition(self) -> str:
        return "Failed" if self.code else "Complete"

    @property
    def output(self) -> str:
        return f"job {self.number}\n"


def manifest(job: Wanted, mark: str) -> Json:
    """A Job that leaves a mark at the site whenever it runs; only its own ends count."""
    script = (
        f"mktemp {DATA}/{mark}.$HOSTNAME.XXXXXX >/dev/null; echo job {job.number}; "
        f"sleep {1 + job.number % 5}; exit {job.code}"
    )
    container = {
        "name": "main",
        "image": "busybox:1.36",
        "command": ["sh", "-c", script],
        "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}},
        "volumeMounts": [{"name": "data", "mountPath": DATA}],
    }
    rules = [
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [FAILS]}},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
        {"action": "Ignore", "onExitCodes": LOST},
    ]
    pod: Json = {
        "restartPolicy": "Never",
        "containers": [container],
        "tolerations": [LEAVES],
        "nodeSelector": {"kubernetes.io/hostname": VIRTUAL_NODE},
        # A token takes the virtual kubelet several requests, of which it allows itself few.
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "volumes": [{"name": "data", "hostPath": {"path": DATA}}],
    }
    spec = {"template": {"spec": pod}, "podFailurePolicy": {"rules": rules}}
    labels = {"kueue.x-k8s.io/queue-name": QUEUE}
    metadata = {"name": job.name, "labels": labels}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


class Crowd:
    """The jobs of one user."""

    def __init__(self, chain: KueueBed, user: User) -> None:
        self.chain, self.user = chain, user
        self.jobs = [Wanted(number) for number in range(JOBS)]
        self.uids: set[str] = set()

    def create(self) -> None:
        for start in range(0, JOBS, AT_ONCE):
            jobs = self.jobs[start : start + AT_ONCE]
            self.user.create(*(manifest(job, self.user.name) for job in jobs))

    def ended(self) -> dict[str, str]:
        """Jobs that have ended, and how."""
        return {
            job["metadata"]["name"]: condition["type"]
            for job in self.user.get("jobs")["items"]
            for condition in job["status"].get("conditions", ())
            if condition["type"] in ("Complete", "Failed") and condition["status"] == "True"
        }

    def until_ended(self, count: int) -> None:
        """For as long as anything moves."""
        seen, end = -1, 0.0
        while seen < count:
            time.sleep(2)
            (found,) = until(lambda: (len(self.ended()),), what="word of the jobs")
            if found > seen:
                seen, end = found, time.monotonic() + STUCK_S
            words = f"{seen} of {JOBS} jobs have ended, and no other for {STUCK_S} s"
            assert time.monotonic() < end, f"{words}: {self._left()}"

    def until_all_ended(self) -> int:
        """The same, with as many new starts of the virtual kubelet as it takes; how many."""
        for starts in range(NEW_STARTS):
            before, end = -1, time.monotonic() + FORGOTTEN_S
            while time.monotonic() < end:
                (found,) = until(lambda: (len(self.ended()),), what="word of the jobs")
                if found == JOBS:
                    return starts
                if found > before:
                    before, end = found, time.monotonic() + FORGOTTEN_S
                time.sleep(2)
            self.chain.kill("virtual-kubelet")
            self.chain.start("virtual-kubelet")
        raise AssertionError(f"not all jobs have ended: {self._left()}")

    def _left(self) -> list[str]:
        over = self.ended()
        return [
            f"{pod['metadata']['name']} {pod['status'].get('phase')} "
            f"{sorted(pod['metadata'].get('annotations', {}))}"
            for pod in self.user.get("pods")["items"]
            if pod["metadata"]["labels"]["job-name"] not in over
        ]

    def pods(self) -> dict[Ended, str]:
        """All of them, and whose they are."""
        items = self.user.get("pods")["items"]
        return {ended(pod): pod["metadata"]["labels"]["job-name"] for pod in items}

    def marks(self) -> Counter[str]:
        """How often each pod ran, by its name."""
        found: Counter[str] = Counter()
        for name in SITES:
            for path in (self.chain.site(name).home / "data").glob(f"{self.user.name}.*"):
                found[path.name.split(".")[1]] += 1
        return found

    def logs(self) -> dict[str, str]:
        """What kubectl shows of each pod, by its name."""
        options = ("--selector=batch.kubernetes.io/job-name", "--prefix", "--ignore-errors")
        found: dict[str, str] = {}
        for line in self.user.kubectl("logs", "--tail=-1", *options, seconds=300).splitlines():
            place, _, text = line.partition("] ")
            name = place.split("/")[1]
            found[name] = found.get(name, "") + f"{text}\n"
        return found


@pytest.fixture
def crowd(chain: KueueBed, user: User) -> Crowd:
    return Crowd(chain, user)


def test_every_job_ends_as_it_should_whatever_is_killed(chain: KueueBed, crowd: Crowd) -> None:
    faults = [
        *killed(chain, *CHAIN, "kueue"),
        *killed_at("host", chain.site("host"), "submitter"),
        *killed_at("slurm", chain.site("slurm"), "submitter", "slurmctld", "slurmd@n1"),
    ]
    crowd.create()
    with Trouble(chain, faults, SEED) as trouble:
        crowd.until_ended(JOBS * 9 // 10)
        until(lambda: trouble.has_had_all, 300, "one kill of each")
    starts = crowd.until_all_ended()
    said = f"seed {SEED}: {trouble}, then {starts} new starts of the virtual kubelet"
    logger.warning("%s", said)
    check(crowd, said)
    crowd.user.kubectl("delete", "jobs", "--all", "--wait=false")
    uids = [pod.uid for pod in crowd.pods()]
    until(lambda: not crowd.user.get("pods")["items"], 300, "the end of the pods")
    until(lambda: not remains(chain, SITES, uids), 120, "the end of all at the sites")


def check(crowd: Crowd, said: str) -> None:
    """All ends, runs and logs are what they have to be."""
    over, pods, marks, logs = crowd.ended(), crowd.pods(), crowd.marks(), crowd.logs()
    conditions = {job.name: job.condition for job in crowd.jobs}
    assert over == conditions, said
    often = {pod.name: marks[pod.name] for pod in pods if marks[pod.name] > 1}
    assert often == {}, said
    own = {job.name: job for job in crowd.jobs}
    whole = {pod: own[job] for pod, job in pods.items() if pod.code == own[job].code}
    lost = pods.keys() - whole
    logger.warning("lost on the way: %s", [(pod.name, pod.code, pod.words) for pod in lost])
    twice = there_twice(crowd.chain.site("slurm"))
    lost = {pod for pod in lost if not is_slurms_own(pod, twice)}
    # interLink, or what it asks, was away when it sent the pod.
    assert [pod for pod in lost if "nothing was submitted" not in pod.words] == [], said
    assert Counter(job.name for job in whole.values()) == Counter(own.keys()), said
    assert {pod.name: marks[pod.name] for pod in whole} == {pod.name: 1 for pod in whole}, said
    wrong = {
        pod.name: logs.get(pod.name)
        for pod, job in whole.items()
        if logs.get(pod.name) != job.output
    }
    assert wrong == {}, said
