"""Jobs of a team's, by the dozen, that tell how often each of them was run."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.chart.helm import Json
from tests.chart.installed import Release
from tests.support.kueue_bed import until

TEAM = "team"
QUEUE = "batch"
VIRTUAL_KUBELET = "deployment/il-interlink-nats-interlink"
FORGOTTEN_S = 45.0
NEW_STARTS = 5


def job(name: str, script: str) -> Json:
    """Of Kueue's queue, for a site; a pod that fails is not replaced."""
    container = {
        "name": "main",
        "image": "busybox:1.36",
        "command": ["sh", "-c", script],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
        "env": [
            {
                "name": "GREETING",
                "valueFrom": {"configMapKeyRef": {"name": "greeting", "key": "text"}},
            }
        ],
    }
    tolerations = [{"key": "virtual-node.interlink/no-schedule", "operator": "Exists"}]
    pod = {"restartPolicy": "Never", "containers": [container], "tolerations": tolerations}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": TEAM,
            "labels": {"kueue.x-k8s.io/queue-name": QUEUE},
        },
        "spec": {"backoffLimit": 0, "template": {"spec": pod}},
    }


def make_team(release: Release) -> None:
    """A namespace with a queue, and with something for its pods to read."""
    where = {"namespace": TEAM}
    release.bed.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}},
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "greeting", **where},
            "data": {"text": "good evening"},
        },
        {
            "apiVersion": "kueue.x-k8s.io/v1beta1",
            "kind": "LocalQueue",
            "metadata": {"name": QUEUE, **where},
            "spec": {"clusterQueue": "masterqueue"},
        },
    )


class Load:
    """Jobs, each of which leaves a mark whenever it runs."""

    def __init__(self, release: Release, name: str, seconds: int = 0) -> None:
        """``seconds``: how long each takes; else one to four."""
        self._release, self._bed, self._name = release, release.bed, name
        self._seconds = seconds
        self._marks = release.folder / f"marks-{name}"
        self._marks.mkdir()
        self._made = 0

    def create(self, count: int = 1) -> None:
        new = range(self._made, self._made + count)
        self._made += count
        self._bed.apply(*(job(f"{self._name}-{n}", self._script(n)) for n in new))

    def _script(self, number: int) -> str:
        mark = f"mktemp {self._marks}/{number}.XXXXXX >/dev/null"
        return f"{mark}; echo job {number} $GREETING; sleep {self._seconds or 1 + number % 4}"

    def during(self, action: Callable[[], object]) -> None:
        """A new job every second, until something is done."""
        with ThreadPoolExecutor(1) as other:
            doing = other.submit(action)
            while not doing.done():
                self.create()
                time.sleep(1)
            doing.result()

    def until_ended(self) -> int:
        """Wait for the end of all jobs; how often the virtual kubelet had to start anew for it.

        It forgets pods that end just when it starts: docs/limits.md.
        """
        for starts in range(NEW_STARTS):
            seen, end = -1, time.monotonic() + FORGOTTEN_S
            while time.monotonic() < end:
                (found,) = until(lambda: (len(self._ended()),), what="word of the jobs")
                if found == self._made:
                    return starts
                if found > seen:
                    seen, end = found, time.monotonic() + FORGOTTEN_S
                time.sleep(1)
            self._release.kubectl("rollout", "restart", VIRTUAL_KUBELET)
            self._release.kubectl("rollout", "status", VIRTUAL_KUBELET, "--timeout=55s")
        raise AssertionError(f"not all jobs have ended: {self._words()}")

    def _ended(self) -> dict[str, str]:
        return {
            name: condition["type"]
            for name, found in self._jobs().items()
            for condition in found["status"].get("conditions", ())
            if condition["type"] in ("Complete", "Failed") and condition["status"] == "True"
        }

    def until_running(self) -> None:
        until(lambda: len(list(self._marks.iterdir())) == self._made, 120, "all jobs to run")

    def _jobs(self) -> dict[str, Json]:
        every = self._bed.get("jobs", namespace=TEAM)["items"]
        found = {one["metadata"]["name"]: one for one in every}
        return {name: one for name, one in found.items() if name.startswith(f"{self._name}-")}

    def _words(self) -> str:
        return self._bed.kubectl("get", "jobs,pods,workloads", "--namespace", TEAM, "-o", "wide")

    def check(self) -> None:
        """Each has succeeded, and none ran twice."""
        names = [f"{self._name}-{number}" for number in range(self._made)]
        assert self._ended() == dict.fromkeys(names, "Complete"), self._words()
        assert {name: one["status"].get("failed", 0) for name, one in self._jobs().items()} == (
            dict.fromkeys(names, 0)
        )
        ran = Counter(int(path.name.partition(".")[0]) for path in self._marks.iterdir())
        assert ran == Counter(range(self._made))
