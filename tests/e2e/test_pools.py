"""Two pools and a node of the cluster's own: who runs where, and what if a pool goes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.queues import Queue
from tests.e2e.sites import HELD, full, let_go
from tests.e2e.users import REAL_NODE, VIRTUAL_NODE, User
from tests.support.kueue_bed import KueueBed, until

Json = dict[str, Any]


def node_of(user: User, job: str) -> str:
    """Where the pod of a Job is, as soon as it has one that is somewhere."""
    (pod,) = until(
        lambda: [p for p in user.pods_of(job) if p["spec"].get("nodeName")], 60, f"{job}'s pod"
    )
    found: str = pod["spec"]["nodeName"]
    return found


def test_jobs_go_to_the_next_pool_and_then_to_the_clusters_own_node(queue: Queue) -> None:
    user = queue.user
    queue.lend_a_node()
    queue.apply()
    queue.until_there()
    eight = {"cpu": "8", "memory": "256Mi"}
    queue.job("first", requests=eight)
    assert user.until_admitted("first") == queue.flavor("host")
    for name in ("second", "third", "fourth"):
        queue.job(name, requests=eight)
        assert user.until_admitted(name) == queue.flavor("slurm")
    queue.job("last", "echo here", requests={"cpu": "1", "memory": "256Mi"})
    assert user.until_admitted("last") == "local-cpu"
    assert node_of(user, "last") == REAL_NODE
    user.until_job("last", "Complete")
    assert user.kubectl("logs", "job/last") == "here\n"
    assert node_of(user, "first") == node_of(user, "fourth") == VIRTUAL_NODE


def test_a_job_that_does_not_tolerate_interlink_never_leaves(queue: Queue) -> None:
    user = queue.user
    queue.lend_a_node()
    queue.apply()
    queue.until_there()
    one = {"cpu": "1", "memory": "256Mi"}
    queue.job("stays", leaves=False, requests=one)
    assert user.until_admitted("stays") == "local-cpu"
    assert node_of(user, "stays") == REAL_NODE
    queue.job("waits", leaves=False, requests=one)
    queue.job("leaves", "true", requests=one)
    assert user.until_admitted("leaves") == queue.flavor("host")
    user.until_job("leaves", "Complete")
    assert user.flavor_of("waits") == "" and user.pods_of("waits") == []
    user.kubectl("delete", "job", "stays")
    assert user.until_admitted("waits") == "local-cpu"


def test_a_queue_borrows_from_each_pool_what_may_be_lent(queue: Queue) -> None:
    user = queue.user
    queue.flavors[0]["canLendTo"] = [{"queue": queue.borrower, "lendingLimit": {"pods": 2}}]
    queue.apply()
    queue.until_there()
    names = [f"j{number}" for number in range(5)]
    for name in names:
        queue.job(name)

    def admitted() -> list[str]:
        return sorted(filter(None, map(user.flavor_of, names)))

    until(lambda: len(admitted()) == 4, 60, "four jobs to be admitted")
    found = admitted()
    assert found == [queue.flavor("host")] * 2 + [queue.flavor("slurm")] * 2
    (left,) = (name for name in names if not user.flavor_of(name))
    user.kubectl("delete", "job", next(n for n in names if user.flavor_of(n) == found[0]))
    assert user.until_admitted(left) == queue.flavor("host")


def test_a_pool_goes_and_comes_back(chain: KueueBed, queue: Queue) -> None:
    user = queue.user
    queue.sites.update(poolTimeout=15, riseAfter=0)
    queue.apply()
    queue.until_there()
    queue.job("before", f"echo begun; {HELD}; echo ended")
    assert user.until_admitted("before") == queue.flavor("host")
    (pod,) = until(lambda: user.pods_of("before"))
    name = pod["metadata"]["name"]
    user.until_phase(name, "Running")
    site = chain.site("host")
    site.stop("submitter")
    try:
        queue.until_pools(host="Lost", slurm="Active")
        queue.job("meanwhile", "echo elsewhere")
        assert user.until_admitted("meanwhile") == queue.flavor("slurm")
        user.until_job("meanwhile", "Complete")
        assert user.flavor_of("before") == queue.flavor("host")
        let_go(chain, "host", user, name)
    finally:
        site.start("submitter")
    queue.until_there()
    user.until_job("before", "Complete")
    assert user.kubectl("logs", "job/before") == "begun\nended\n"
    queue.job("after", "true")
    assert user.until_admitted("after") == queue.flavor("host")
    user.until_job("after", "Complete")


def test_a_pool_under_drain_takes_no_more_jobs(chain: KueueBed, queue: Queue) -> None:
    user = queue.user
    queue.apply()
    queue.until_there()
    queue.job("runs", HELD)
    assert user.until_admitted("runs") == queue.flavor("host")
    (pod,) = until(lambda: user.pods_of("runs"))
    name = pod["metadata"]["name"]
    user.until_phase(name, "Running")
    queue.apply(drain=["host"])
    queue.until_pools(host="Draining")
    queue.job("next", "true")
    assert user.until_admitted("next") == queue.flavor("slurm")
    user.until_job("next", "Complete")
    let_go(chain, "host", user, name)
    user.until_job("runs", "Complete")
    assert user.flavor_of("runs") == queue.flavor("host")


@pytest.fixture
def waiting(chain: KueueBed, queue: Queue) -> Iterator[Queue]:
    """A queue that prefers the pool whose batch system is full, with a job that waits in there."""
    queue.sites.update(pools=["slurm", "host"], poolTimeout=15, riseAfter=0, returnAfter=5)
    queue.apply()
    queue.until_there()
    with full(chain.site("slurm")):
        # Its Job may count the pod that it loses as a failed one (docs/limits.md).
        queue.job("stuck", "echo ran", backoffLimit=3)
        assert queue.user.until_admitted("stuck") == queue.flavor("slurm")
        until(lambda: is_queued(chain, "stuck"), 60, "a job in Slurm's queue")
        # With interLink 0.5 the pod is Running from then on (docs/limits.md).
        until(lambda: "Slurm: " in str(queue.user.pods_of("stuck")), 60, "word of it in the pod")
        yield queue


def is_queued(chain: KueueBed, name: str) -> bool:
    """Whether Slurm has a job of a pod that is called so."""
    return f"{name}-" in chain.site("slurm").login("squeue", "-h", "-o", "%j")


def test_a_job_that_waits_in_a_drained_pool_runs_elsewhere(chain: KueueBed, waiting: Queue) -> None:
    waiting.apply(drain=["slurm"], evictDrained=True)
    waiting.user.until_job("stuck", "Complete")
    assert waiting.user.flavor_of("stuck") == waiting.flavor("host")
    assert waiting.user.kubectl("logs", "job/stuck") == "ran\n"
    until(lambda: not is_queued(chain, "stuck"), 60, "Slurm's queue without it")


def test_a_job_that_waits_in_a_lost_pool_is_given_back(chain: KueueBed, waiting: Queue) -> None:
    site = chain.site("slurm")
    site.stop("submitter")
    try:
        waiting.user.until_job("stuck", "Complete")
        assert waiting.user.flavor_of("stuck") == waiting.flavor("host")
        assert is_queued(chain, "stuck")
    finally:
        site.start("submitter")
    until(lambda: not is_queued(chain, "stuck"), 60, "Slurm's queue without it")
