"""The operator beside a real Kueue: what it writes at rest, how soon a change counts, its costs.

Writes are counted by the API server itself, over five minutes, and shown per hour. A round's CPU
time is that of the operator's own metric; while it is taken, one of 200 pools changes each second.
Kueue has room for 64 flavors in a queue: with all 200 pools in one MasterQueue, 64 are used; in
four of them, with 50 pools and 5 borrowers each, all are.
"""

from __future__ import annotations

import contextlib
import os
import re
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kueue_nats.kube.client import KueueClient, connect
from kueue_nats.plan.objects import QUEUES
from tests.bench.rows import Row
from tests.support.kueue_bed import KueueBed, running, until
from tests.support.kueue_operator import PASSWORD, USER, Operator, Pools, install
from tests.support.nats_server import NatsServer

POLL_S = 2  # the default
AT_REST_S = 300
CHANGES = 40
POOLS = [f"{group}-{number:02}" for group in "abcd" for number in range(50)]
WRITES = ("POST", "PUT", "PATCH", "APPLY", "DELETE")
SERIES = re.compile(r'(\w+)="([^"]*)"')

Json = dict[str, Any]


def run() -> list[Row]:
    """All rows, on one bed."""
    with tempfile.TemporaryDirectory(prefix="interlink-bench-") as name, stage(Path(name)) as found:
        rows = [*at_rest(found), change(found)]
        for shape in (1, 4):
            rows += large(found, shape)
    return rows


class Stage:
    """A bed, an operator with its default interval, and pools that speak every ten seconds."""

    def __init__(self, bed: KueueBed, operator: Operator, pools: Pools, url: str) -> None:
        self.bed, self.operator, self.pools, self.url = bed, operator, pools, url
        self.cluster: KueueClient = connect(str(bed.kubeconfig))
        self.version = self.cluster.kueue_version()

    def master(self, name: str, flavors: list[Json]) -> None:
        self.bed.apply(
            {
                "apiVersion": "vk.io/v1",
                "kind": "MasterQueue",
                "metadata": {"name": name},
                "spec": {"template": {"cohort": "bench"}, "flavors": flavors},
            }
        )

    def flavor(self, name: str, borrowers: int, **nats: Any) -> Json:
        heard = {"natsConnector": self.url, "natsSubject": self.pools.subject, "riseAfter": 0}
        lends = [
            {"queue": f"{name}-team-{i}", "lendingLimit": {"pods": 30}} for i in range(borrowers)
        ]
        return {"name": name, "natsFlavor": {**heard, **nats}, "canLendTo": lends}

    def cpu(self, queue: str, flavor: str) -> str:
        """The quota of CPUs that a queue has of a flavor."""
        spec = self.cluster.listed(QUEUES, self.version).get(queue, {}).get("spec", {})
        for group in spec.get("resourceGroups") or ():
            for one in group["flavors"]:
                if one["name"] == flavor:
                    return str(one["resources"][0]["nominalQuota"])
        return ""

    def until_told(self, master: str, alive: int) -> None:
        def look() -> bool:
            status = self.bed.get("mq", master).get("status") or {}
            return status.get("poolsAlive") == alive

        until(look, 120, f"{alive} pools in {master}")

    def writes(self) -> dict[str, float]:
        """All writes to what is the operator's business that the API server has answered."""
        counted: dict[str, float] = {}
        for line in self.bed.kubectl("get", "--raw", "/metrics").splitlines():
            if line.startswith("apiserver_request_total{"):
                labels, value = dict(SERIES.findall(line)), float(line.split()[-1])
                what = f"{labels['resource']}/{labels['subresource']}"
                if labels["verb"] in WRITES:
                    counted[what] = counted.get(what, 0) + value
        return counted


@contextlib.contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    """Everything that is measured, and who speaks meanwhile."""
    users = [{"user": USER, "password": PASSWORD}]
    nats = NatsServer(folder / "nats", authorization={"users": users}).start()
    try:
        with running(f"bench-{os.getpid()}", node=False) as bed:
            operator = Operator(folder / "operator", install(bed), poll_s=POLL_S, lease_s=15)
            pools, over = Pools(nats, "bench"), threading.Event()
            pools.answers = True
            speaker = threading.Thread(target=_speak, args=(pools, over))
            speaker.start()
            operator.start().until_up()
            try:
                url = f"nats://{USER}:{quote(PASSWORD, safe='')}@127.0.0.1:{nats.port}"
                yield Stage(bed, operator, pools, url)
            finally:
                over.set()
                speaker.join()
                pools.close()
                operator.stop()
    finally:
        nats.stop()


def _speak(pools: Pools, over: threading.Event) -> None:
    while not over.wait(10):
        pools.publish()


# --- rows -----------------------------------------------------------------------------------------


def at_rest(found: Stage) -> list[Row]:
    """Ten pools, of which nothing new is to be said."""
    for pool in POOLS[:10]:
        found.pools.offer(pool, cpu=64, memory="256Gi", pods=100)
    found.master("rest", [found.flavor("rest", 2, poolRegExp=".*")])
    found.until_told("rest", 10)
    time.sleep(3 * POLL_S)  # what the last change of status brings about
    before = found.writes()
    time.sleep(AT_REST_S)
    after = found.writes()
    made = {what: count - before.get(what, 0) for what, count in after.items()}
    objects = sum(made.get(f"{kind}/", 0) for kind in ("clusterqueues", "resourceflavors"))
    minutes = AT_REST_S / 60
    told = made.get("masterqueues/status", 0) / minutes / 10
    return [
        Row("kueue-writes-at-rest", objects * 60 / minutes, "Kueue objects/h", "limit", 1, "<=", 0),
        Row("kueue-status-at-rest", told, "writes per pool and minute", "limit", 1, "<=", 1),
    ]


def change(found: Stage) -> Row:
    """From a publication to the ClusterQueue's quota, at moments of all kinds; the slowest."""
    took = []
    for number in range(CHANGES):
        time.sleep(number * 0.37 % POLL_S)
        wanted = str(10 + number)
        start = time.monotonic()
        found.pools.offer(POOLS[0], cpu=wanted, memory="256Gi", pods=100)
        while found.cpu("rest", f"rest.rest.{POOLS[0]}") != wanted:
            time.sleep(0.02)
        took.append(time.monotonic() - start)
    median = statistics.median(took)
    return Row(
        f"kueue-change (median {median:.2f})", max(took), "s at most", "interval", POLL_S, "<=", 1
    )


def large(found: Stage, masters: int) -> list[Row]:
    """200 pools in 4 groups with 20 borrowers, in one MasterQueue or in four."""
    found.bed.kubectl("delete", "mq", "--all")
    queues = "clusterqueues.kueue.x-k8s.io"
    until(lambda: not found.bed.get(queues)["items"], 60, "the end of the queues")
    for pool in POOLS:
        found.pools.offer(pool, cpu=64, memory="256Gi", pods=100)
    flavors = [found.flavor(group, 5, poolRegExp=f"{group}-.*") for group in "abcd"]
    names = [f"large{number}" for number in range(masters)]
    for number, name in enumerate(names):
        found.master(name, flavors if masters == 1 else [flavors[number]])
    used = 64 if masters == 1 else 50
    for name in names:
        found.until_told(name, used)
    before = _rounds(found.operator)
    for number in range(CHANGES):
        found.pools.offer(POOLS[number % 50], cpu=number, memory="256Gi", pods=100)
        time.sleep(POLL_S / 2)
    after = _rounds(found.operator)
    seconds, rounds = (new - old for new, old in zip(after, before))
    name = f"{masters} MasterQueue{'s' * (masters > 1)}, {used * masters} flavors"
    memory = _peak_mb(found.operator)
    return [
        Row(f"kueue-round-cpu ({name})", seconds / rounds * 1000, "ms", "limit", 200, "<=", 1),
        Row(f"kueue-memory ({name})", memory, "MB at most", "limit", 120, "<=", 1),
    ]


def _rounds(operator: Operator) -> tuple[float, float]:
    name = "kueue_nats_round_cpu_seconds"
    return operator.metric(f"{name}_sum"), operator.metric(f"{name}_count")


def _peak_mb(operator: Operator) -> float:
    assert operator.process is not None
    text = Path(f"/proc/{operator.process.pid}/status").read_text()
    (line,) = (line for line in text.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024
