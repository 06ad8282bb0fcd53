"""Every test here has the chain of scripts/bed: a cluster, Kueue, interLink, us, two sites.

Tests mostly wait, so several workers run them side by side, each with a chain of its own.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.queues import Queue
from tests.e2e.traces import processes_of, traces
from tests.e2e.users import User
from tests.support import core
from tests.support.kueue_bed import KueueBed, running, until

SITES = ("host", "slurm")

# What "scripts/test e2e-core" runs.
CORE = {
    "test_job.py": (
        "test_the_documented_job_runs_at_a_site",
        "test_logs_are_as_on_a_real_node_in_all_forms",
        "test_init_containers_are_seen_one_after_the_other",
    ),
    "test_pools.py": (
        "test_jobs_go_to_the_next_pool_and_then_to_the_clusters_own_node",
        "test_a_job_that_does_not_tolerate_interlink_never_leaves",
    ),
    "test_failures.py": ("test_pods_that_are_deleted_while_they_run",),
    "test_soak.py": ("test_users_come_and_go_while_things_break",),
}

# Each worker takes a module at a time (two, if the first is one test): what takes long comes first.
FIRST = ("test_kinds.py", "test_failures.py", "test_kills.py", "test_soak.py", "test_rows.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    core.mark(items, Path(__file__).parent, pytest.mark.e2e, CORE)
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    """Where its module stands; tests of other tiers stay where they are, before these."""
    if Path(__file__).parent not in item.path.parents:
        return -1
    return FIRST.index(item.path.name) if item.path.name in FIRST else len(FIRST)


@pytest.fixture(scope="session")
def chain() -> Iterator[KueueBed]:
    """One for all tests of a worker, of which nothing is left at its end.

    What a test creates in it is in a namespace of its own.
    """
    with running(f"e2e-{os.getpid()}", sites=SITES) as found:
        yield found
        until(lambda: not leaving(found), 180, "the end of what was deleted")
        processes = processes_of(found)
        there = {line.split()[0] for line in traces(found, processes)}
    assert there >= {"process", "cable", "group", "file"}
    # Who has held the bed for us looks after it once more, and goes.
    until(lambda: not traces(found, processes), 30, f"the end of {traces(found, processes)}")


def leaving(chain: KueueBed) -> list[str]:
    """The namespaces that have been deleted, and are still there."""
    found = chain.get("namespaces")["items"]
    return [one["metadata"]["name"] for one in found if "deletionTimestamp" in one["metadata"]]


@pytest.fixture
def user(chain: KueueBed) -> Iterator[User]:
    """Somebody with a namespace and a queue, in which nothing is left afterwards."""
    found = User(chain, f"t{uuid.uuid4().hex[:6]}")
    yield found
    found.go()


@pytest.fixture
def queue(user: User) -> Iterator[Queue]:
    found = Queue(user)
    yield found
    user.kubectl("delete", "jobs", "--all", "--wait=true", seconds=120)
    user.bed.kubectl("delete", "masterqueue", found.name, "--ignore-not-found")
