"""Requeueing of jobs; it lists Workloads only while some may have to be requeued."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kueue_nats import returning
from kueue_nats.cluster import Cluster
from kueue_nats.errors import ClusterError, Unreachable
from kueue_nats.model import Group, MasterQueue
from kueue_nats.planning import DRAINING, LOST, Plan, PlannedPool
from kueue_nats.remembering import Records
from templates.names import flavor_name

logger = logging.getLogger(__name__)


class _Eviction(NamedTuple):
    """Flavor that jobs have to leave."""

    flavor: str
    why: str
    only_idle: bool  # those that have started may end


class Requeuer:
    """Carries out the patches of ``returning``; what was begun is marked in the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._underway = True  # perhaps by an operator before this one

    def go_on(
        self,
        masters: Iterable[tuple[MasterQueue, Plan]],
        records: Records,
        now_s: float,
        version: str,
    ) -> None:
        """Requeue jobs; log a failure, which the next round retries."""
        leave = [one for master, plan in masters for one in _leaves(master, plan, records, now_s)]
        if not leave and not self._underway:
            return
        try:
            workloads = self._cluster.workloads(version)
            pods = self._cluster.pods_of_jobs() if any(one.only_idle for one in leave) else []
            idle = frozenset(one.flavor for one in leave if one.only_idle)
            why = {one.flavor: one.why for one in leave}
            for patch in returning.patches(workloads, pods, why, idle):
                self._cluster.patch_workload(version, patch.namespace, patch.name, patch.body)
                words = patch.words or "is active again, to be admitted elsewhere"
                logger.info("Workload %s/%s: %s", patch.namespace, patch.name, words)
                self._underway = True
            self._underway = returning.is_underway(workloads) or bool(leave)
        except Unreachable:
            raise
        except ClusterError as error:
            logger.warning("jobs cannot be given back: %s", error)


def _leaves(master: MasterQueue, plan: Plan, records: Records, now_s: float) -> Iterator[_Eviction]:
    groups = {group.name: group for group in master.groups}
    for pool in plan.pools:
        group = groups[pool.group]
        name = pool.flavor or flavor_name(master.name, group.name, pool.name)
        if pool.state == DRAINING and master.evict_drained and pool.name in master.drain:
            yield _Eviction(name, f"MasterQueue {master.name} drains pool {pool.name}", False)
        elif _is_given_up(pool, group, records, now_s):
            words = f"pool {pool.name} is lost, and they have not started"
            yield _Eviction(name, words, True)


def _is_given_up(pool: PlannedPool, group: Group, records: Records, now_s: float) -> bool:
    nats = group.nats
    if pool.state != LOST or nats is None or nats.return_after_s is None:
        return False
    record = records.get((nats.source, pool.name))
    return record is not None and now_s - record.heard_s >= nats.timeout_s + nats.return_after_s
