"""Ends that Kubernetes never hears of: the plugin writes them down itself, if its account may.

interLink's virtual kubelet asks how a pod is doing until it hears that it has ended, and then never
again. What it writes down then may be lost (docs/limits.md): it puts the state that Kubernetes had
over the one that it is about to write, and in the first seconds of its life it writes none. Such a
pod is Pending or Running for ever, its Job never done and its quota never free.

So an end that is old enough, of a pod that Kubernetes still lists among those that have not ended,
is written into the status of that pod, as the virtual kubelet does it. Nothing else of a pod is
changed, and nothing at all when the pod has changed since it was read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, Callable

from plugin_server.common.errors import Malformed
from plugin_server.common.periodic_thread import Looking
from plugin_server.interlink.requests import Asked, read
from plugin_server.interlink.responses import pod_status, stamp
from plugin_server.kubernetes.client import ANSWERS_AGAIN, Cluster, PodChanged
from plugin_server.state.job_table import StatesTable
from plugin_server.state.pending_deletes import Deletions
from templates.job.status import ENDED, JobStatus

logger = logging.getLogger(__name__)

OVER = ("Succeeded", "Failed")
WORDS = "written by the plugin: interLink's virtual kubelet had not written down that it ended"
Json = Mapping[str, Any]


class UnwrittenEnds:
    """Looks for such pods, and writes down their ends."""

    def __init__(
        self,
        cluster: Cluster,
        after_s: float,
        table: StatesTable,
        deletions: Deletions,
        origin: Callable[[], str],  # of this cluster's jobs; empty as long as it is not known
        on_written: Callable[[str], object],  # told the pool
    ) -> None:
        self._cluster = cluster
        self._after_s = after_s
        self._table = table
        self._deletions = deletions
        self._origin = origin
        self._since: dict[str, float] = {}  # uid -> when it was first known that it has ended
        self._written: set[str] = set()
        pause_s = max(after_s / 4, 0.5)
        self.looking = Looking("ends", self.look, lambda: pause_s, ANSWERS_AGAIN)
        self._on_written = on_written

    def look(self) -> None:
        """Write down what is due; raises ``ClusterError``."""
        due = self._due()
        if not due:
            return
        unended = self._cluster.unended_pods()
        self._written.update(due.keys() - unended)
        for uid, (pool, job) in due.items():
            if uid in unended and not self.looking.is_over:
                self._write(pool, job)

    def _due(self) -> dict[str, tuple[str, JobStatus]]:
        """Jobs that ended long enough ago, and of which nobody knows yet that Kubernetes knows."""
        origin, now = self._origin(), time.monotonic()
        ended = {
            job.uid: (pool, job)
            for pool, job in (self._table.of_origin(origin) if origin else ())
            if job.phase == ENDED and not job.deleting and not self._deletions.is_deleted(job.uid)
        }
        self._written &= ended.keys()
        self._since = {uid: self._since.get(uid, now) for uid in ended}
        return {
            uid: found
            for uid, found in ended.items()
            if uid not in self._written and now - self._since[uid] >= self._after_s
        }

    def _write(self, pool: str, job: JobStatus) -> None:
        pod = self._cluster.pod(job.namespace, job.pod)
        try:
            asked = read(pod or {})
        except Malformed:
            return  # it is gone
        phase = (pod or {}).get("status", {}).get("phase")
        if asked.uid != job.uid or asked.deleting or phase in OVER:
            return  # it is another one, or its virtual kubelet has been quicker
        status = ended_status(pod or {}, asked, job)
        try:
            self._cluster.write_status(pod or {}, status)
        except PodChanged:
            return  # what it is now is seen by the next look
        words = "%s: pod %s/%s has ended as %s, %s"
        told = (job.job, job.namespace, job.pod, status["phase"], WORDS)
        logger.warning(words, *told, extra={"job": job.job})
        self._written.add(job.uid)
        self._on_written(pool)


def ended_status(pod: Json, asked: Asked, job: JobStatus) -> dict[str, Any]:
    """What the virtual kubelet would have written of a job that has ended."""
    told = pod_status(asked, job)
    inits, mains = told["initContainers"], told["containers"]
    codes = [entry["state"]["terminated"]["exitCode"] for entry in (*inits, *mains)]
    code = next(filter(None, reversed(codes)), 0)
    shown = pod["status"]
    at = stamp(int(time.time() * 1000))
    ready = {"status": "False", "reason": "PodCompleted", "lastTransitionTime": at}
    return {
        "phase": "Failed" if code else "Succeeded",
        "reason": _reason(code),
        "message": WORDS,
        "initContainerStatuses": _all(shown.get("initContainerStatuses"), inits),
        "containerStatuses": _all(shown.get("containerStatuses"), mains),
        "conditions": [{"type": name, **ready} for name in ("Ready", "ContainersReady")],
    }


def _all(shown: Any, told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was shown, with what is told now in its place or behind it."""
    entries = {entry["name"]: entry for entry in (*(shown or ()), *told)}
    for entry in told:
        end = entry["state"]["terminated"]
        entries[entry["name"]] = {
            **entry,
            "state": {"terminated": {**end, "reason": _reason(end["exitCode"])}},
        }
    return list(entries.values())


def _reason(code: int) -> str:
    return f"Error: {code}" if code else "Completed"
