"""Two pools and a node of the cluster's own: who runs where."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.users import REAL_NODE, VIRTUAL_NODE, User
from tests.kueue_bed import until

Json = dict[str, Any]
FOR_EVER = "sleep 600"


class Queue:
    """A MasterQueue of a test's own on the bed's two pools, with a queue that borrows from it."""

    def __init__(self, user: User, **nats: Any) -> None:
        self.user, self.name = user, f"mq-{user.name}"
        self.borrower = user.name
        self.flavors: list[Json] = [
            {
                "name": "sites",
                "natsFlavor": {"poolRegExp": ".*", "virtualNode": VIRTUAL_NODE, **nats},
                "canLendTo": [{"queue": self.borrower}],
            }
        ]

    def apply(self, **spec: Any) -> None:
        self.user.bed.apply(
            {
                "apiVersion": "vk.io/v1",
                "kind": "MasterQueue",
                "metadata": {"name": self.name},
                "spec": {"flavors": self.flavors, **spec},
            }
        )
        self.user.queue(self.borrower)

    def until_pools(self, **wanted: str) -> None:
        """Wait until pools are in these states."""

        def look() -> bool:
            status = self.user.bed.get("masterqueues.vk.io", self.name).get("status") or {}
            found = {pool["name"]: pool["state"] for pool in status.get("pools") or ()}
            return all(found.get(name) == state for name, state in wanted.items())

        until(look, 90, f"pools {wanted}")

    def until_there(self) -> None:
        """Wait until both pools are in it."""
        self.until_pools(host="Active", slurm="Active")

    def flavor(self, pool: str) -> str:
        return f"{self.name}.sites.{pool}"

    def job(self, name: str, script: str = FOR_EVER, **more: Any) -> None:
        self.user.job(name, script, queue=self.borrower, **more)


@pytest.fixture
def queue(user: User) -> Iterator[Queue]:
    found = Queue(user)
    yield found
    user.kubectl("delete", "jobs", "--all", "--wait=true", seconds=120)
    user.bed.kubectl("delete", "masterqueue", found.name, "--ignore-not-found")


def node_of(user: User, job: str) -> str:
    """Where the pod of a Job is, as soon as it has one that is somewhere."""
    (pod,) = until(
        lambda: [p for p in user.pods_of(job) if p["spec"].get("nodeName")], 60, f"{job}'s pod"
    )
    found: str = pod["spec"]["nodeName"]
    return found


def test_jobs_go_to_the_next_pool_and_then_to_the_clusters_own_node(queue: Queue) -> None:
    user = queue.user
    queue.flavors.append(
        {
            "name": "local-cpu",
            "localFlavor": {},
            "nominalQuota": {"cpu": 1, "memory": "1Gi", "pods": 5},
            "canLendTo": [{"queue": queue.borrower}],
        }
    )
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
