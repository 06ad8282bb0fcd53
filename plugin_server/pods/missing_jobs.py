"""Pods that are not in the table: rejected, just accepted, or lost."""

from __future__ import annotations

from typing import NamedTuple, Optional

from plugin_server.interlink.requests import RequestedPod
from plugin_server.interlink.responses import lost_status
from plugin_server.nats.resync import Resync
from plugin_server.pods.job_lookup import JobLookup
from plugin_server.state.pending_deletes import Deletions
from plugin_server.state.rejections import Rejections
from templates.common.names import job_name


class UnknownSettings(NamedTuple):
    """Settings for unknown pods."""

    default_pool: str
    lost_after_s: float


class UnknownPods:
    """Lookup and status of unknown pods; called by any number of threads."""

    def __init__(
        self,
        settings: UnknownSettings,
        resync: Resync,
        lookup: JobLookup,
        deletions: Deletions,
        rejections: Rejections,
    ) -> None:
        self._settings = settings
        self._resync = resync
        self._lookup = lookup
        self._deletions = deletions
        self._rejections = rejections

    def look_up(self, pods: list[RequestedPod]) -> set[str]:
        """Query their sites, within limits; return the uids without a reply."""
        by_pool: dict[str, list[RequestedPod]] = {}
        for pod in pods:
            pool = pod.pool or self._settings.default_pool
            if pool and pod.mains and not self._deletions.is_deleted(pod.uid):
                by_pool.setdefault(pool, []).append(pod)
        unanswered: set[str] = set()
        for pool, pods_of_pool in by_pool.items():
            names = [job_name(pod.name, pod.uid) for pod in pods_of_pool]
            syncing = self._resync.is_syncing(pool)
            if syncing or not self._lookup.look_up(pool, names):
                unanswered.update(pod.uid for pod in pods_of_pool)
        return unanswered

    def status(self, pod: RequestedPod) -> Optional[dict[str, object]]:
        """Return the status of a pod that was rejected or is lost, else None.

        It is lost if it was accepted, and its site has replied for long that it has no such job.
        """
        rejection = self._rejections.message(pod.uid)
        if rejection is not None and not pod.deleting:
            return lost_status(pod, job_name(pod.name, pod.uid), rejection)
        if not pod.adopted or pod.deleting or self._deletions.is_deleted(pod.uid):
            return None
        job = job_name(pod.name, pod.uid)
        missing_s = self._lookup.missing_s(job)
        if missing_s < self._settings.lost_after_s:
            return None
        pool = pod.pool or self._settings.default_pool
        message = (
            f"lost: pool {pool} had taken the job {job}, and says since {missing_s:.0f} s that it "
            "has no such job; it is not run again"
        )
        return lost_status(pod, job, message)
