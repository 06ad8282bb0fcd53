"""1,000 running pods of a pool that is a cluster: how often its API server is called meanwhile.

The API server is a real one, and counts by itself: a FlowSchema sets apart what comes from the
submitter's account. What it watches with one request that stays counts once. The pods are objects
of that cluster which the submitter has made, but no node runs them: each is bound to a node that
does not exist, and given once what a kubelet says of a pod whose container runs. To the submitter
that is no difference. It offers a quota, which it asks for at each interval of its own.
"""

from __future__ import annotations

import json
import os
import re
import signal
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import urllib3

from tests.bench.rows import Row
from tests.sites.kubernetes.pool import ACCOUNT, Cluster, job_of
from tests.support.kueue_bed import KueueBed, running, until
from tests.support.nats_server import NatsServer
from tests.unit.submitter.rig import Centre, Submitter

FEW, MANY = 10, 1000
MEASURED_S = 60
INTERVAL_S = 1  # at which the submitter looks at its jobs; it asks for the quota at every other one
SCHEMA = "interlink-submitter"
COUNTER = re.compile(
    rf'^apiserver_flowcontrol_dispatched_requests_total{{flow_schema="{SCHEMA}".*}} (\S+)$', re.M
)

Json = dict[str, Any]


def run() -> list[Row]:
    """Calls per interval, and how that grows with the pods."""
    with (
        tempfile.TemporaryDirectory(prefix="interlink-bench-") as name,
        running(f"bench-{os.getpid()}", node=False) as bed,
    ):
        few, many = measured(bed, Path(name))
    return [
        Row("kubernetes-calls", many, f"per interval, {MANY} pods", "limit", 1, "<=", 1),
        Row("kubernetes-calls-grow", many, f"with {MANY} pods", f"{FEW} pods", few, "<=", 1.1),
    ]


class Kubelet:
    """Says of pods that they run."""

    def __init__(self, bed: KueueBed, namespace: str) -> None:
        keys = bed.kubeconfig.parent / "pki"
        self._pods = f"{bed.server}/api/v1/namespaces/{namespace}/pods"
        self._http = urllib3.PoolManager(
            ca_certs=str(keys / "ca.crt"),
            cert_file=str(keys / "admin.crt"),
            key_file=str(keys / "admin.key"),
        )

    def run(self, name: str) -> None:
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        target = {"apiVersion": "v1", "kind": "Node", "name": "nowhere"}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}}
        self._ask("POST", f"{name}/binding", {**binding, "target": target}, "application/json")
        container = {
            "name": "main",
            "image": "none",
            "imageID": "none",
            "ready": True,
            "started": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": now}},
        }
        status = {"phase": "Running", "startTime": now, "containerStatuses": [container]}
        kind = "application/strategic-merge-patch+json"
        self._ask("PATCH", f"{name}/status", {"status": status}, kind)

    def _ask(self, method: str, path: str, body: Json, kind: str) -> None:
        headers = {"Content-Type": kind}
        url = f"{self._pods}/{path}"
        answer = self._http.request(method, url, body=json.dumps(body), headers=headers)
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.data!r}")


def measured(bed: KueueBed, folder: Path) -> tuple[float, float]:
    """Calls per interval with few pods, and with many."""
    cluster = Cluster(bed)
    namespace = cluster.namespace(pods=MANY + 500)
    bed.apply(flow_schema(namespace))
    # Nobody else has to do with pods whose node does not exist, or with pods that have none.
    bed.stop("controller-manager", "scheduler")
    nats = NatsServer(folder / "nats").start()
    centre = Centre(nats)
    options = {"capacity": "quota", "quota": "pool"}
    pool = cluster.pool(namespace, options=options, resources={})
    submitter = Submitter(nats, folder, **pool).until_ready(centre)
    kubelet = Kubelet(bed, namespace)
    try:
        found = []
        for start, end in ((0, FEW), (FEW, MANY)):
            add(centre, kubelet, range(start, end))
            found.append(calls_per_interval(bed))
    finally:
        submitter.stop(signal.SIGKILL)
        centre.close()
        nats.stop()
    return found[0], found[1]


def flow_schema(namespace: str) -> Json:
    account = {"name": ACCOUNT, "namespace": namespace}
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}
    rule = {
        "subjects": [{"kind": "ServiceAccount", "serviceAccount": account}],
        "resourceRules": [everything],
    }
    return {
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "FlowSchema",
        "metadata": {"name": SCHEMA},
        "spec": {
            "matchingPrecedence": 100,
            "priorityLevelConfiguration": {"name": "workload-low"},
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [rule],
        },
    }


def add(centre: Centre, kubelet: Kubelet, numbers: range) -> None:
    """So many pods more, until each is known to run."""
    jobs = [job_of("sleep 1000000", name=f"b{number}") for number in numbers]
    for job in jobs:
        centre.insist(job)
    for job in jobs:
        until(lambda job=job: native(centre, job.name), 300, f"{job.name} in the cluster")
        kubelet.run(job.name)

    def running_ones() -> int:
        states = centre.query(everything=True).states
        return sum(one.containers[0].state.state == "running" for one in states)

    until(lambda: running_ones() == numbers.stop, 300, f"{numbers.stop} running pods")


def native(centre: Centre, job: str) -> str:
    status = centre.status(job)
    return status.native if status else ""


def calls_per_interval(bed: KueueBed) -> float:
    before, begin = calls(bed), time.monotonic()
    time.sleep(MEASURED_S)
    made, passed = calls(bed) - before, time.monotonic() - begin
    if not made:
        raise RuntimeError("not even the quota was asked for: nothing is counted")
    return made / passed * INTERVAL_S


def calls(bed: KueueBed) -> float:
    """What the submitter's account has asked for so far."""
    found = COUNTER.findall(bed.kubectl("get", "--raw", "/metrics"))
    return sum(map(float, found))
