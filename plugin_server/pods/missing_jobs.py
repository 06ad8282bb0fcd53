"""Pods that the table does not know, or not any more: refused, just taken, or lost."""

from __future__ import annotations

from typing import NamedTuple, Optional

from plugin_server.interlink.requests import Asked
from plugin_server.interlink.responses import lost_status
from plugin_server.nats.resync import Snapshots
from plugin_server.pods.job_lookup import Lookups
from plugin_server.state.pending_deletes import Deletions
from plugin_server.state.rejections import Refusals
from templates.common.names import job_name


class UnknownSettings(NamedTuple):
    """What the admin has said about them."""

    default_pool: str
    lost_after_s: float


class UnknownPods:
    """What is done about them; called by any number of threads."""

    def __init__(
        self,
        settings: UnknownSettings,
        snapshots: Snapshots,
        lookups: Lookups,
        deletions: Deletions,
        refusals: Refusals,
    ) -> None:
        self._settings = settings
        self._snapshots = snapshots
        self._lookups = lookups
        self._deletions = deletions
        self._refusals = refusals

    def look_up(self, pods: list[Asked]) -> set[str]:
        """Ask their sites, if that may be worth it now; uids of those of which none has spoken."""
        by_pool: dict[str, list[Asked]] = {}
        for pod in pods:
            pool = pod.pool or self._settings.default_pool
            if pool and pod.mains and not self._deletions.is_deleted(pod.uid):
                by_pool.setdefault(pool, []).append(pod)
        silent: set[str] = set()
        for pool, some in by_pool.items():
            names = [job_name(pod.name, pod.uid) for pod in some]
            syncing = self._snapshots.is_syncing(pool)
            if syncing or not self._lookups.look_up(pool, names):
                silent.update(pod.uid for pod in some)
        return silent

    def status(self, pod: Asked) -> Optional[dict[str, object]]:
        """The end of a pod that was refused or is lost; None as long as there is nothing to say.

        It is lost when it was taken once, and its site has said for long that it has it not.
        """
        refused = self._refusals.words(pod.uid)
        if refused is not None and not pod.deleting:
            return lost_status(pod, job_name(pod.name, pod.uid), refused)
        if not pod.adopted or pod.deleting or self._deletions.is_deleted(pod.uid):
            return None
        job = job_name(pod.name, pod.uid)
        missing_s = self._lookups.missing_s(job)
        if missing_s < self._settings.lost_after_s:
            return None
        pool = pod.pool or self._settings.default_pool
        words = (
            f"lost: pool {pool} had taken the job {job}, and says since {missing_s:.0f} s that it "
            "has no such job; it is not run again"
        )
        return lost_status(pod, job, words)
