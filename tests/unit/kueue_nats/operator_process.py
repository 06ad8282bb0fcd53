"""The operator as a process of its own, with a cluster in its memory: ``python -m ... URL``.

It answers each line on its standard input with a line of JSON: what it has made and said.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from typing import Any, Optional

from kueue_nats.operator.operator import Operator
from kueue_nats.plan.objects import FLAVORS, QUEUES
from kueue_nats.spec.settings import Settings
from tests.unit.kueue_nats.cluster_in_memory import ClusterInMemory
from tests.unit.kueue_nats.masters import heard, raw


class LeasedCluster(ClusterInMemory):
    """One in which an operator can lead."""

    def lease(self, namespace: str, name: str) -> Optional[dict[str, Any]]:
        return None

    def write_lease(self, namespace: str, name: str, body: dict[str, Any]) -> None:
        pass


def answer(cluster: LeasedCluster) -> None:
    for _ in sys.stdin:
        told = {
            "queues": cluster.objects[QUEUES],
            "flavors": cluster.objects[FLAVORS],
            "status": cluster.owners["mq"].get("status") or {},
            "writes": cluster.writes,
        }
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


def main() -> None:
    cluster = LeasedCluster()
    cluster.set_master(raw(heard(nats={"natsConnector": sys.argv[1], "riseAfter": 0})))
    threading.Thread(target=answer, args=(cluster,), daemon=True).start()
    operator = Operator(Settings(namespace="ns", poll_s=1), cluster)  # type: ignore[arg-type]
    asyncio.run(operator.run())


if __name__ == "__main__":
    main()
