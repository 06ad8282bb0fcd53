"""Terminal statuses that Kubernetes misses: the plugin writes them, if its account may.

interLink's virtual kubelet requests the status of a pod until it has ended, and then never again.
Its last update may be lost (docs/limits.md): it overwrites the status that it is about to write
with the one that Kubernetes had, and in its first seconds it writes none. Such a pod is Pending or
Running for ever, its Job is never complete and its quota never free.

So when a job ended long enough ago, and Kubernetes still lists its pod as not ended, the plugin
patches the status of the pod as the virtual kubelet would. It changes nothing else, and nothing at
all when the pod has changed since it was read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, Callable

from plugin_server.common.errors import Malformed
from plugin_server.common.periodic_thread import Poller
from plugin_server.interlink.requests import RequestedPod, read_pod
from plugin_server.interlink.responses import format_time, pod_status
from plugin_server.kubernetes.client import ANSWERS_AGAIN, PodApi, PodChanged
from plugin_server.state.job_table import JobTable
from plugin_server.state.pending_deletes import Deletions
from templates.job.status import ENDED, JobStatus

logger = logging.getLogger(__name__)

ENDED_PHASES = ("Succeeded", "Failed")
MESSAGE = "written by the plugin: interLink's virtual kubelet had not written down that it ended"
Json = Mapping[str, Any]
_Job = tuple[str, str]  # pool and uid


class TerminalStatusWriter:
    """Writer of the terminal statuses of pods for which interLink has not written one."""

    def __init__(
        self,
        api: PodApi,
        after_s: float,
        table: JobTable,
        deletions: Deletions,
        origin: Callable[[], str],  # uid of this cluster; empty until it is known
        on_written: Callable[[str], object],  # called with the pool
    ) -> None:
        self._api = api
        self._after_s = after_s
        self._table = table
        self._deletions = deletions
        self._origin = origin
        self._since: dict[_Job, float] = {}  # when it was first known to have ended
        self._written: set[_Job] = set()
        pause_s = max(after_s / 4, 0.5)
        self.poller = Poller("ends", self.look, lambda: pause_s, ANSWERS_AGAIN)
        self._on_written = on_written

    def look(self) -> None:
        """Write the statuses that are due; raises ``PodApiError``."""
        due = self._due()
        if not due:
            return
        unended = self._api.list_unended_pod_uids()
        self._written.update(key for key in due if key[1] not in unended)
        for (pool, uid), job in due.items():
            if uid in unended and not self.poller.is_stopping:
                self._write(pool, job)

    def _due(self) -> dict[_Job, JobStatus]:
        """Return jobs that ended long enough ago and may not have ended in Kubernetes."""
        origin, now = self._origin(), time.monotonic()
        ended = {
            (pool, job.uid): job
            for pool, job in (self._table.of_origin(origin) if origin else ())
            if job.phase == ENDED and not job.deleting and not self._deletions.is_deleted(job.uid)
        }
        self._written &= ended.keys()
        self._since = {key: self._since.get(key, now) for key in ended}
        return {
            key: job
            for key, job in ended.items()
            if key not in self._written and now - self._since[key] >= self._after_s
        }

    def _write(self, pool: str, job: JobStatus) -> None:
        pod = self._api.read_pod(job.namespace, job.pod)
        try:
            requested = read_pod(pod or {})
        except Malformed:
            return  # it does not exist any more
        if pool != (requested.pool or self._table.home(job.uid) or pool):
            return  # of another pool's pod it may say what it likes
        phase = (pod or {}).get("status", {}).get("phase")
        if requested.uid != job.uid or requested.deleting or phase in ENDED_PHASES:
            return  # another pod of that name, or it has ended by now
        status = ended_status(pod or {}, requested, job)
        try:
            self._api.write_status(pod or {}, status)
        except PodChanged:
            return  # the next round reads it again
        message = "%s: pod %s/%s has ended as %s, %s"
        arguments = (job.job, job.namespace, job.pod, status["phase"], MESSAGE)
        logger.warning(message, *arguments, extra={"job": job.job})
        self._written.add((pool, job.uid))
        self._on_written(pool)


def ended_status(pod: Json, requested: RequestedPod, job: JobStatus) -> dict[str, Any]:
    """Return the status that the virtual kubelet would have written for an ended job."""
    response = pod_status(requested, job)
    inits, mains = response["initContainers"], response["containers"]
    codes = [entry["state"]["terminated"]["exitCode"] for entry in (*inits, *mains)]
    code = next(filter(None, reversed(codes)), 0)
    before = pod["status"]
    at = format_time(int(time.time() * 1000))
    ready = {"status": "False", "reason": "PodCompleted", "lastTransitionTime": at}
    return {
        "phase": "Failed" if code else "Succeeded",
        "reason": _reason(code),
        "message": MESSAGE,
        "initContainerStatuses": _merge(before.get("initContainerStatuses"), inits),
        "containerStatuses": _merge(before.get("containerStatuses"), mains),
        "conditions": [{"type": name, **ready} for name in ("Ready", "ContainersReady")],
    }


def _merge(before: Any, ended: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return container statuses, with those of ended containers replaced or appended."""
    entries = {entry["name"]: entry for entry in (*(before or ()), *ended)}
    for entry in ended:
        end = entry["state"]["terminated"]
        entries[entry["name"]] = {
            **entry,
            "state": {"terminated": {**end, "reason": _reason(end["exitCode"])}},
        }
    return list(entries.values())


def _reason(code: int) -> str:
    return f"Error: {code}" if code else "Completed"
