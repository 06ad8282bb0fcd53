"""Orphans: jobs whose pods Kubernetes no longer has, and whose delete was lost.

To cancel a job wrongly destroys work, so a job is an orphan only if

- it was created by a plugin of this very cluster: pools may be shared, and pods of another cluster
  cannot be seen here;
- its pod is missing in a complete list of all pods that was requested after the job was known, and
  still is in another one, ``after_s`` later. A failed request means nothing;
- it is one of few. When a pool has more orphans within an hour than the brake lets pass, none is
  cancelled until a person has looked.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable
from typing import Callable, NamedTuple, Optional

from plugin_server.common.periodic_thread import Poller
from plugin_server.kubernetes.client import ANSWERS_AGAIN, PodApi
from plugin_server.state.job_table import JobTable
from plugin_server.state.pending_deletes import Deletions
from plugin_server.state.pools import Pools
from templates.job.status import JobStatus

logger = logging.getLogger(__name__)

LONGEST_PAUSE_S = 120.0
NO_ORIGIN_PAUSE_S = 5.0  # jobs that are created meanwhile will never be found
SHARE = 20  # the brake lets pass one in so many of a pool's jobs, if that is more than at_once
WINDOW_S = 3600.0


class Candidate(NamedTuple):
    """Job of this cluster that may be an orphan."""

    pool: str
    job: JobStatus


class OrphanLimits(NamedTuple):
    """Settings of orphans."""

    after_s: float  # until a job whose pod is missing is an orphan
    at_once: int


class Brake:
    """Limit of the orphans of a pool that are cancelled within an hour."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._cancelled: dict[str, list[float]] = {}  # pool -> when

    def lets_pass(self, pool: str, orphans: int, jobs: int, now: float) -> bool:
        """Return whether so many of a pool's jobs may be cancelled now; if so, count them."""
        recent = [at for at in self._cancelled.get(pool, ()) if now - at < WINDOW_S]
        self._cancelled[pool] = recent
        if len(recent) + orphans > max(self._at_once, jobs // SHARE):
            return False
        recent.extend([now] * orphans)
        return True


class MissingPods:
    """Jobs whose pods are missing in Kubernetes, and since when."""

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._since: dict[tuple[str, str], float] = {}  # pool and uid

    def update(
        self, candidates: Iterable[Candidate], pods: Collection[str], listed_at: float
    ) -> list[Candidate]:
        """Apply a list of pods requested at ``listed_at``; return jobs missing long enough."""
        missing = {(one.pool, one.job.uid): one for one in candidates if one.job.uid not in pods}
        self._since = {key: self._since.get(key, listed_at) for key in missing}
        return [
            one for key, one in missing.items() if listed_at - self._since[key] >= self._after_s
        ]


class OrphanFinder:
    """Finder of orphans, which it cancels."""

    def __init__(
        self,
        api: PodApi,
        limits: OrphanLimits,
        table: JobTable,
        pools: Pools,
        deletions: Deletions,
        on_cancelled: Callable[[str], object],  # called with the pool
    ) -> None:
        self._api = api
        self._table = table
        self._pools = pools
        self._deletions = deletions
        self._on_cancelled = on_cancelled
        self._missing = MissingPods(limits.after_s)
        self._brake = Brake(limits.at_once)
        self._pause_s = min(LONGEST_PAUSE_S, max(limits.after_s / 5, 0.5))
        self.poller = Poller("orphans", self.look, self._pause, ANSWERS_AGAIN)
        self.origin = ""  # uid of this cluster; empty until it is known
        self.last_list_at: Optional[float] = None
        self.held: dict[str, int] = {}  # pool -> orphans that the brake has held back

    @property
    def silent_s(self) -> float:
        """Return the seconds since the last complete list of pods."""
        if self.last_list_at is None:
            return float("inf")
        return time.monotonic() - self.last_list_at

    def _pause(self) -> float:
        return self._pause_s if self.origin else min(self._pause_s, NO_ORIGIN_PAUSE_S)

    def look(self) -> None:
        """Find and cancel orphans; raises ``PodApiError``."""
        self.origin = self._api.read_cluster_uid()
        listed_at = time.monotonic()
        candidates = self._candidates()
        pods = self._api.list_pod_uids()
        self.last_list_at = time.monotonic()
        orphans: dict[str, list[JobStatus]] = {}
        for pool, job in self._missing.update(candidates, pods, listed_at):
            orphans.setdefault(pool, []).append(job)
        held = {}
        for pool, jobs in orphans.items():
            known = sum(one.pool == pool for one in candidates)
            if self.poller.is_stopping:
                return
            if self._brake.lets_pass(pool, len(jobs), known, listed_at):
                self._cancel(pool, jobs)
            else:
                held[pool] = len(jobs)
        self._log_held(held)

    def _candidates(self) -> list[Candidate]:
        """Return the jobs of this cluster that are not being deleted, in pools that are alive."""
        known = self._pools.snapshot()
        return [
            Candidate(pool, job)
            for pool, job in self._table.of_origin(self.origin)
            if not job.deleting
            and not self._deletions.is_deleted(job.uid)
            and pool in known
            and self._pools.is_alive(known[pool])
        ]

    def _cancel(self, pool: str, jobs: Iterable[JobStatus]) -> None:
        for job in jobs:
            message = (
                "%s: cancelled as an orphan: Kubernetes has no pod %s/%s with its uid any more"
            )
            logger.warning(message, job.job, job.namespace, job.pod, extra={"job": job.job})
            self._deletions.add(pool, job.job, None)
            self._on_cancelled(pool)

    def _log_held(self, held: dict[str, int]) -> None:
        for pool, count in held.items():
            if count != self.held.get(pool):
                message = (
                    "pool %s: Kubernetes does not know the pods of %d jobs; these are more orphans "
                    "than the brake lets pass, and none is cancelled: see orphans.at_once"
                )
                logger.error(message, pool, count)
        self.held = held
