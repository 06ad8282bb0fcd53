"""What a user of the cluster does and sees: pods, jobs, logs, all by kubectl."""

from __future__ import annotations

from typing import Any, Optional

from tests.support.kueue_api import Refused
from tests.support.kueue_bed import KueueBed, until

Json = dict[str, Any]

VIRTUAL_NODE, REAL_NODE = "interlink", "node1"
QUEUE = "gr1"
LEAVES = {"key": "virtual-node.interlink/no-schedule", "operator": "Exists"}


def goes_to(pool: str) -> list[Json]:
    """The tolerations of a pod that may run in this pool."""
    return [LEAVES, {"key": "pool.vk.io", "value": pool, "effect": "NoSchedule"}]


class User:
    """One with a namespace of the same name, and a LocalQueue in it."""

    def __init__(self, bed: KueueBed, name: str) -> None:
        self.bed, self.name = bed, name
        self.bed.new_namespace(name)
        self.queue(QUEUE)

    def leave(self) -> None:
        """Delete all of it, and wait until nothing is left."""
        self.bed.kubectl("delete", "namespace", self.name, seconds=180)

    def go(self) -> None:
        """Delete all of it, and wait until it takes no room any more.

        The namespace itself takes its time; that it ends is seen when the chain does.
        """
        self.kubectl("delete", "jobs,pods", "--all", seconds=120)
        self.bed.kubectl("delete", "namespace", self.name, "--wait=false")

    def kubectl(self, *words: str, **more: Any) -> str:
        return self.bed.kubectl(*words, "--namespace", self.name, **more)

    def get(self, *words: str) -> Json:
        return self.bed.get(*words, namespace=self.name)

    def items(self, kind: str, selector: str = "") -> list[Json]:
        listed = self.bed.api.get(kind, namespace=self.name, selector=selector)
        found: list[Json] = listed["items"]
        return found

    def queue(self, cluster_queue: str) -> None:
        """A LocalQueue that is called like the ClusterQueue that it leads to."""
        self.bed.apply(
            {
                "apiVersion": "kueue.x-k8s.io/v1beta1",
                "kind": "LocalQueue",
                "metadata": {"name": cluster_queue, "namespace": self.name},
                "spec": {"clusterQueue": cluster_queue},
            }
        )

    # --- pods -----------------------------------------------------------------------------------

    def create(self, *manifests: Json) -> None:
        """Create objects in the namespace of the user's."""
        self.bed.apply(*(self._mine(manifest) for manifest in manifests))

    def _mine(self, manifest: Json) -> Json:
        return {**manifest, "metadata": {**manifest["metadata"], "namespace": self.name}}

    def pod(self, name: str) -> Json:
        return self.get("pods", name)

    def until_ended(self, name: str, seconds: float = 120) -> Json:
        """Wait for the end of a pod."""

        def look() -> Optional[Json]:
            pod = self.pod(name)
            return pod if pod["status"].get("phase") in ("Succeeded", "Failed") else None

        try:
            return until(look, seconds, f"the end of pod {name}")
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.pod(name)['status']}") from None

    def until_phase(self, name: str, phase: str, seconds: float = 120) -> Json:
        """Wait for a phase of a pod, which must not end before."""

        def look() -> Optional[Json]:
            pod = self.pod(name)
            found = pod["status"].get("phase")
            assert found in ("Pending", "Running", phase), pod["status"]
            return pod if found == phase else None

        return until(look, seconds, f"pod {name}: {phase}")

    def log(self, pod: str, *words: str, seconds: float = 60) -> str:
        return self.kubectl("logs", pod, *words, seconds=seconds)

    def complaint(self, *words: str) -> str:
        """What kubectl says when it fails."""
        try:
            self.kubectl(*words)
        except Refused as refused:
            return str(refused)
        raise AssertionError(f"kubectl {' '.join(words)} has succeeded")

    # --- jobs -----------------------------------------------------------------------------------

    def job(self, name: str, script: str, *, leaves: bool = True, **more: Any) -> None:
        """A Job in the queue; without ``leaves`` it does not tolerate interLink's node."""
        container = {
            "name": "main",
            "image": "busybox:1.36",
            "command": ["sh", "-c", script],
            "resources": {"requests": more.pop("requests", {"cpu": "100m", "memory": "256Mi"})},
        }
        pod: Json = {"restartPolicy": "Never", "containers": [container]}
        pod["terminationGracePeriodSeconds"] = 1
        if leaves:
            pod["tolerations"] = [LEAVES]
        labels = {"kueue.x-k8s.io/queue-name": more.pop("queue", QUEUE)}
        self.create(
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": name, "labels": labels},
                "spec": {"template": {"spec": pod}, "backoffLimit": 0, **more},
            }
        )

    def pods_of(self, job: str) -> list[Json]:
        return self.items("pods", f"job-name={job}")

    def flavor_of(self, job: str) -> str:
        """The flavor that a Job was admitted to; empty if it was not."""
        for workload in self.items("workloads"):
            if workload["metadata"]["ownerReferences"][0]["name"] == job:
                admission = workload.get("status", {}).get("admission", {})
                flavors = [a["flavors"] for a in admission.get("podSetAssignments", ())]
                return next((f for found in flavors for f in found.values()), "")
        return ""

    def until_admitted(self, job: str, seconds: float = 60) -> str:
        """Wait until a Job is admitted; the flavor."""
        return until(lambda: self.flavor_of(job), seconds, f"job {job} to be admitted")

    def until_job(self, name: str, condition: str, seconds: float = 180) -> Json:
        """Wait until a Job is Complete or Failed."""

        def look() -> Optional[Json]:
            job = self.get("jobs", name)
            return job if condition in holding(job) else None

        return until(look, seconds, f"job {name}: {condition}")

    def until_over(self, name: str, seconds: float) -> str:
        """Wait until a Job is Complete or Failed; which of the two."""

        def look() -> str:
            held = holding(self.get("jobs", name))
            return next((over for over in ("Complete", "Failed") if over in held), "")

        return until(look, seconds, f"the end of job {name}")


def holding(job: Json) -> list[str]:
    """The conditions of a Job that are true."""
    return [c["type"] for c in job["status"].get("conditions", ()) if c["status"] == "True"]
