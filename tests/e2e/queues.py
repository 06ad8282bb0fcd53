"""A MasterQueue for one test, on the pools that it is about."""

from __future__ import annotations

from typing import Any

from tests.e2e.users import VIRTUAL_NODE, User
from tests.support.kueue_bed import until

Json = dict[str, Any]
FOR_EVER = "sleep 600"


class Queue:
    """A MasterQueue of a test's own on the bed's two pools, with a queue that borrows from it."""

    def __init__(self, user: User) -> None:
        self.user, self.name = user, f"mq-{user.name}"
        self.borrower = user.name
        self.sites: Json = {"pools": ["host", "slurm"], "virtualNode": VIRTUAL_NODE}
        lent = [{"queue": self.borrower}]
        self.flavors: list[Json] = [
            {"name": "sites", "natsFlavor": self.sites, "canLendTo": lent},
        ]

    def lend_a_node(self) -> None:
        """The cluster's own node has room for one more job."""
        self.flavors.append(
            {
                "name": "local-cpu",
                "localFlavor": {},
                "nominalQuota": {"cpu": 1, "memory": "1Gi", "pods": 5},
                "canLendTo": [{"queue": self.borrower}],
            }
        )

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
