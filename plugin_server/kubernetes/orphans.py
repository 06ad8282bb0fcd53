"""Jobs that Kubernetes no longer knows: nobody has heard their deletion, nor will hear it again.

Whoever wrongly cancels a job destroys work, so a job is an orphan only if

- it was created by a plugin of this very cluster: pools may be shared, and the pods of another
  cluster are not ours to judge;
- its pod is missing in a whole list of all pods that was asked for after the job was known, and
  still is in another one, ``after_s`` later. What could not be asked says nothing;
- it is one of few. When more jobs of a pool are orphans than may be, within an hour, than the
  brake lets pass, none of them is touched before a person has looked.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable
from typing import Callable, NamedTuple, Optional

from plugin_server.common.periodic_thread import Looking
from plugin_server.kubernetes.client import ANSWERS_AGAIN, Cluster
from plugin_server.state.job_table import StatesTable
from plugin_server.state.pending_deletes import Deletions
from plugin_server.state.pools import Pools
from templates.job.status import JobStatus

logger = logging.getLogger(__name__)

LONGEST_PAUSE_S = 120.0
NO_ORIGIN_PAUSE_S = 5.0  # what is created meanwhile will never be looked for
SHARE = 20  # the brake lets pass one in so many of a pool's jobs, if that is more than at_once
WINDOW_S = 3600.0


class Candidate(NamedTuple):
    """A job of this cluster."""

    pool: str
    job: JobStatus


class OrphanLimits(NamedTuple):
    """What the admin has said about them."""

    after_s: float  # until a job whose pod is missing is an orphan
    at_once: int


class Brake:
    """How many orphans of a pool may be cancelled within an hour."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._cancelled: dict[str, list[float]] = {}  # pool -> when

    def lets_pass(self, pool: str, orphans: int, jobs: int, now: float) -> bool:
        """Whether so many of a pool's jobs may be cancelled now; then they count."""
        lately = [at for at in self._cancelled.get(pool, ()) if now - at < WINDOW_S]
        self._cancelled[pool] = lately
        if len(lately) + orphans > max(self._at_once, jobs // SHARE):
            return False
        lately.extend([now] * orphans)
        return True


class Missing:
    """Since when Kubernetes has not known the pods of jobs."""

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._since: dict[tuple[str, str], float] = {}  # pool and uid

    def look(
        self, candidates: Iterable[Candidate], pods: Collection[str], asked_at: float
    ) -> list[Candidate]:
        """Those that have been missing for long enough, by a list that was asked for then."""
        missing = {(one.pool, one.job.uid): one for one in candidates if one.job.uid not in pods}
        self._since = {key: self._since.get(key, asked_at) for key in missing}
        return [one for key, one in missing.items() if asked_at - self._since[key] >= self._after_s]


class Orphans:
    """Looks for orphans, and cancels them."""

    def __init__(
        self,
        cluster: Cluster,
        limits: OrphanLimits,
        table: StatesTable,
        pools: Pools,
        deletions: Deletions,
        on_cancelled: Callable[[str], object],  # told the pool
    ) -> None:
        self._cluster = cluster
        self._table = table
        self._pools = pools
        self._deletions = deletions
        self._on_cancelled = on_cancelled
        self._missing = Missing(limits.after_s)
        self._brake = Brake(limits.at_once)
        self._pause_s = min(LONGEST_PAUSE_S, max(limits.after_s / 5, 0.5))
        self.looking = Looking("orphans", self.look, self._pause, ANSWERS_AGAIN)
        self.origin = ""  # of the jobs that are created here; empty as long as it is not known
        self.listed_at: Optional[float] = None
        self.held: dict[str, int] = {}  # pool -> orphans that the brake has held back

    @property
    def silent_s(self) -> float:
        """How long ago Kubernetes has last said which pods there are."""
        return time.monotonic() - self.listed_at if self.listed_at is not None else float("inf")

    def _pause(self) -> float:
        return self._pause_s if self.origin else min(self._pause_s, NO_ORIGIN_PAUSE_S)

    def look(self) -> None:
        """Cancel what has become an orphan; raises ``ClusterError``."""
        self.origin = self._cluster.identity()
        asked_at = time.monotonic()
        candidates = self._candidates()
        pods = self._cluster.pods()
        self.listed_at = time.monotonic()
        orphans: dict[str, list[JobStatus]] = {}
        for pool, job in self._missing.look(candidates, pods, asked_at):
            orphans.setdefault(pool, []).append(job)
        held = {}
        for pool, jobs in orphans.items():
            known = sum(one.pool == pool for one in candidates)
            if self.looking.is_over:
                return
            if self._brake.lets_pass(pool, len(jobs), known, asked_at):
                self._cancel(pool, jobs)
            else:
                held[pool] = len(jobs)
        self._say_held(held)

    def _candidates(self) -> list[Candidate]:
        """The jobs of this cluster whose end nobody has asked for, in pools that can be told so."""
        known = self._pools.known()
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
            words = "%s: cancelled as an orphan: Kubernetes has no pod %s/%s with its uid any more"
            logger.warning(words, job.job, job.namespace, job.pod, extra={"job": job.job})
            self._deletions.add(pool, job.job, None)
            self._on_cancelled(pool)

    def _say_held(self, held: dict[str, int]) -> None:
        for pool, count in held.items():
            if count != self.held.get(pool):
                words = (
                    "pool %s: Kubernetes does not know the pods of %d jobs; these are more orphans "
                    "than the brake lets pass, and none is cancelled: see orphans.at_once"
                )
                logger.error(words, pool, count)
        self.held = held
