"""Requeueing of jobs; it lists Workloads only while some may have to be requeued."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kueue_nats.kube.client import KueueClient
from kueue_nats.plan.planner import DRAINING, LOST, Plan, PlannedPool
from kueue_nats.reconcile import requeue_plan
from kueue_nats.reconcile.restore import Records
from kueue_nats.spec.errors import KueueClientError, Unreachable
from kueue_nats.spec.masterqueue import Group, MasterQueue
from templates.common.names import flavor_name

logger = logging.getLogger(__name__)


class _Eviction(NamedTuple):
    """Flavor that jobs have to leave."""

    flavor: str
    reason: str
    only_idle: bool  # those that have started may end


class Requeuer:
    """Carries out the patches of ``returning``; what was begun is marked in the cluster."""

    def __init__(self, cluster: KueueClient) -> None:
        self._cluster = cluster
        self._pending = True  # perhaps by an operator before this one

    def run(
        self,
        masters: Iterable[tuple[MasterQueue, Plan]],
        records: Records,
        now_s: float,
        version: str,
    ) -> None:
        """Requeue jobs; log a failure, which the next round retries."""
        evictions = [
            one for master, plan in masters for one in _evictions(master, plan, records, now_s)
        ]
        if not evictions and not self._pending:
            return
        try:
            workloads = self._cluster.workloads(version)
            pods = self._cluster.pods_of_jobs() if any(one.only_idle for one in evictions) else []
            idle = frozenset(one.flavor for one in evictions if one.only_idle)
            reasons = {one.flavor: one.reason for one in evictions}
            for patch in requeue_plan.workload_patches(workloads, pods, reasons, idle):
                self._cluster.patch_workload(version, patch.namespace, patch.name, patch.body)
                message = patch.message or "is active again, to be admitted elsewhere"
                logger.info("Workload %s/%s: %s", patch.namespace, patch.name, message)
                self._pending = True
            self._pending = requeue_plan.has_pending(workloads) or bool(evictions)
        except Unreachable:
            raise
        except KueueClientError as error:
            logger.warning("jobs cannot be given back: %s", error)


def _evictions(
    master: MasterQueue, plan: Plan, records: Records, now_s: float
) -> Iterator[_Eviction]:
    groups = {group.name: group for group in master.groups}
    for pool in plan.pools:
        group = groups[pool.group]
        name = pool.flavor or flavor_name(master.name, group.name, pool.name)
        if pool.state == DRAINING and master.evict_drained and pool.name in master.drain:
            yield _Eviction(name, f"MasterQueue {master.name} drains pool {pool.name}", False)
        elif _is_given_up(pool, group, records, now_s):
            message = f"pool {pool.name} is lost, and they have not started"
            yield _Eviction(name, message, True)


def _is_given_up(pool: PlannedPool, group: Group, records: Records, now_s: float) -> bool:
    nats = group.nats
    if pool.state != LOST or nats is None or nats.return_after_s is None:
        return False
    record = records.get((nats.source, pool.name))
    return record is not None and now_s - record.heard_s >= nats.timeout_s + nats.return_after_s
