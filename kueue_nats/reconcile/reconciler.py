"""Reconciler: one round brings the cluster nearer to what each MasterQueue asks for."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Optional

from kueue_nats.kube.client import KueueClient
from kueue_nats.plan import actions as steps
from kueue_nats.plan import drafts, planner, shared_pools, usage
from kueue_nats.plan.actions import Actions
from kueue_nats.plan.objects import FLAVORS, QUEUES, owner_reference
from kueue_nats.plan.planner import Plan
from kueue_nats.plan.shared_pools import PoolShare
from kueue_nats.pools.listener import connection_settings
from kueue_nats.pools.tracker import current_offers
from kueue_nats.reconcile import conditions, restore
from kueue_nats.reconcile.requeue import Requeuer
from kueue_nats.reconcile.restore import Clock, ExistingObjects, Records
from kueue_nats.spec import masterqueue
from kueue_nats.spec.errors import KueueClientError, NotFound, SpecError, Unreachable
from kueue_nats.spec.masterqueue import MasterQueue, NatsSource
from kueue_nats.status import events
from kueue_nats.status import status as reporting
from kueue_nats.status.status import FALSE, READY, Condition, StatusInput
from templates.nats.options import LinkSettings
from templates.program.settings import Nats

logger = logging.getLogger(__name__)

Json = dict[str, Any]


class RoundInput(NamedTuple):
    """Input of a round: what was heard until now."""

    records: Records
    errors: Mapping[NatsSource, str]  # why a source cannot be heard; empty: it can
    clock: Clock


class RoundResult(NamedTuple):
    """Result of a round: what it asks of the listener and of the table of pools."""

    sources: Mapping[NatsSource, LinkSettings]
    # Those that cannot be reached, too: what was heard there counts on.
    wanted_sources: frozenset[NatsSource]
    restored: Records
    again: bool  # there is a next step, which nothing has to be waited for


class _Snapshot(NamedTuple):
    """Snapshot of the cluster's objects."""

    version: str
    flavors: Mapping[str, Json]
    queues: Mapping[str, Json]


class _PlannedMaster(NamedTuple):
    """MasterQueue that could be read, with its plan."""

    raw: Json
    master: MasterQueue
    plan: Plan


class Reconciler:
    """Reconciler of all MasterQueues.

    What it keeps from round to round only saves calls; all that matters is in the cluster.
    """

    def __init__(self, cluster: KueueClient, own: Nats, namespace: str, *, strict: bool) -> None:
        self._cluster, self._own, self._namespace = cluster, own, namespace
        self._strict = strict
        self._version = ""
        self._planned_before: set[tuple[str, frozenset[NatsSource]]] = set()  # in the last round
        self._written_s: dict[str, float] = {}  # when the status was written last, by uid
        self._last_actions: dict[str, Optional[Actions]] = {}  # by uid; None: some were refused
        self._seen: frozenset[str] = frozenset()  # uids of the flavors at the last look
        self._requeuer = Requeuer(cluster)

    def sources(self, clock: Clock) -> Mapping[NatsSource, LinkSettings]:
        """Return where pools are to be heard, before anything is done."""
        return self._sources(master for _, master in self._read_masters(clock))[0]

    def round(self, heard: RoundInput) -> RoundResult:
        """Reconcile all MasterQueues once; raises ``Unreachable`` when the cluster is."""
        clock = heard.clock
        masters = list(self._read_masters(clock))
        sources, unreached = self._sources(master for _, master in masters)
        wanted_sources = frozenset((*sources, *unreached))
        try:
            there = self._snapshot()
        except NotFound as error:
            for raw, _ in masters:
                self._write_failure(raw, "KueueMissing", str(error), clock)
            return RoundResult(sources, wanted_sources, {}, False)
        restored = self._restored(masters, there, clock)
        records = {**restored, **heard.records}
        heard = heard._replace(records=records, errors={**heard.errors, **unreached})
        planned = [
            _PlannedMaster(raw, master, _plan(master, heard, there)) for raw, master in masters
        ]
        overcommitted = shared_pools.overcommit_warnings(_shares(planned), records)
        again = [self._reconcile(one, heard, there, overcommitted) for one in planned]
        plans = [(one.master, one.plan) for one in planned]
        self._requeuer.run(plans, records, clock.now_s, there.version)
        self._planned_before = {_sources_of(master) for _, master in masters}
        self._seen = frozenset(str(one["metadata"]["uid"]) for one in there.flavors.values())
        return RoundResult(sources, wanted_sources, restored, any(again))

    # --- reading --------------------------------------------------------------------------------

    def _snapshot(self) -> _Snapshot:
        self._version = self._version or self._cluster.kueue_version()
        try:
            flavors = self._cluster.listed(FLAVORS, self._version)
            return _Snapshot(self._version, flavors, self._cluster.listed(QUEUES, self._version))
        except NotFound:
            self._version = ""  # Kueue was replaced: the next round finds out
            raise

    def _read_masters(self, clock: Clock) -> Iterator[tuple[Json, MasterQueue]]:
        for raw in self._cluster.masters():
            if "deletionTimestamp" in raw["metadata"]:
                continue
            try:
                yield raw, masterqueue.read(raw)
            except SpecError as error:
                self._write_failure(raw, "InvalidSpec", str(error), clock)

    def _restored(
        self, masters: list[tuple[Json, MasterQueue]], there: _Snapshot, clock: Clock
    ) -> Records:
        """Return the pools of MasterQueues that are new to this process, from the cluster."""
        found: Records = {}
        for raw, master in masters:
            queue = there.queues.get(master.name)
            if _sources_of(master) not in self._planned_before and queue is not None:
                objects = ExistingObjects(_owned(there.flavors, master.uid), queue)
                status = raw.get("status") or {}
                found.update(
                    restore.restore_records(master, status, objects, clock, strict=self._strict)
                )
        return found

    def _sources(
        self, masters: Iterable[MasterQueue]
    ) -> tuple[dict[NatsSource, LinkSettings], dict[NatsSource, str]]:
        """Return how each source is reached, and why others cannot be."""
        sources: dict[NatsSource, LinkSettings] = {}
        unreached: dict[NatsSource, str] = {}
        groups = (group for master in masters for group in master.groups)
        for source in dict.fromkeys(group.nats.source for group in groups if group.nats):
            try:
                sources[source] = connection_settings(source, self._secret(source), self._own)
            except Unreachable:
                raise
            except (SpecError, KueueClientError) as error:
                unreached[source] = str(error)
        return sources, unreached

    def _secret(self, source: NatsSource) -> str:
        ref = source.secret
        return self._cluster.secret(self._namespace, ref.name, ref.key) if ref else ""

    # --- one MasterQueue ------------------------------------------------------------------------

    def _reconcile(
        self,
        planned: _PlannedMaster,
        heard: RoundInput,
        there: _Snapshot,
        overcommitted: Mapping[tuple[NatsSource, str], str],
    ) -> bool:
        """Carry out the next actions, or write the status; return whether more is to be done."""
        raw, master, plan = planned
        usable = steps.usable_flavors(plan, master.uid, there.flavors)
        known = steps.known_flavors(usable, self._seen, master.uid, there.flavors, there.queues)
        wanted = drafts.objects(plan, owner_reference(raw), there.version, known)
        actions = steps.diff_actions(wanted, master.uid, there.flavors, there.queues)
        is_repeated = self._last_actions.get(master.uid) == actions
        undone = [action.name for action in actions.todo] if is_repeated else []
        refused = self._carry_out(actions, master.name, there.version)
        self._last_actions[master.uid] = None if refused else actions
        if (actions.todo or known < usable) and not refused and not undone:
            return True  # its status is written when there is nothing more to do
        failures = conditions.Failures(refused, undone, actions.foreign)
        warnings = conditions.pool_warnings(master, heard.records, heard.clock, overcommitted)
        given = StatusInput(
            generation=master.generation,
            conditions=(
                conditions.ready_condition(plan, failures, there.queues),
                conditions.connected_condition(master, heard.errors),
                reporting.health_condition(plan.pools, warnings),
            ),
            reports=dict(conditions.pool_reports(master, heard.records)),
            usage=usage.plan_usage(plan, there.queues),
            warnings=warnings,
        )
        status = reporting.build_status(plan, given, raw.get("status") or {}, heard.clock.now)
        self._write_status(raw, status, heard.clock)
        return False

    def _carry_out(self, actions: Actions, name: str, version: str) -> list[str]:
        """Carry out all actions; return the errors of those that were refused."""
        refused = []
        for action in actions.todo:
            try:
                if action.verb == steps.APPLY:
                    self._cluster.apply(action.plural, dict(action.body))
                else:
                    self._cluster.delete(action.plural, version, action.body)
                logger.info(
                    "MasterQueue %s: %s %s/%s", name, action.verb, action.plural, action.name
                )
            except Unreachable:
                raise
            except KueueClientError as error:
                refused.append(str(error))
        return refused

    # --- its status -----------------------------------------------------------------------------

    def _write_failure(self, raw: Json, reason: str, message: str, clock: Clock) -> None:
        before = raw.get("status") or {}
        generation = raw["metadata"].get("generation", 0)
        ready = Condition(READY, FALSE, reason, message)
        status = reporting.failed_status(ready, generation, before, clock.now)
        self._write_status(raw, status, clock)

    def _write_status(self, raw: Json, status: Json, clock: Clock) -> None:
        """Write a status that has changed, and Events of the changes."""
        name, uid = raw["metadata"]["name"], raw["metadata"]["uid"]
        before = raw.get("status") or {}
        age_s = clock.now_s - self._written_s.get(uid, float("-inf"))
        if not reporting.needs_write(status, before, age_s):
            return
        try:
            self._cluster.write_status(name, status, raw["metadata"]["resourceVersion"])
            self._written_s[uid] = clock.now_s
            for event in events.status_events(before, status):
                logger.info("MasterQueue %s: %s: %s", name, event.reason, event.message)
                self._cluster.write_event(events.event_body(event, raw, clock.now))
        except Unreachable:
            raise
        except KueueClientError as error:
            logger.warning("MasterQueue %s: %s", name, error)  # the next round tries again


# --- pure parts -----------------------------------------------------------------------------------


def _plan(master: MasterQueue, heard: RoundInput, there: _Snapshot) -> Plan:
    offers = {
        group.name: current_offers(heard.records, group.nats, heard.clock.now_s)
        for group in master.groups
        if group.nats is not None
    }
    foreign = there.flavors.keys() - _owned(there.flavors, master.uid).keys()
    return planner.plan(master, offers, foreign)


def _sources_of(master: MasterQueue) -> tuple[str, frozenset[NatsSource]]:
    """Return whose pools are heard where; those of a new entry are restored from the cluster."""
    return master.uid, frozenset(group.nats.source for group in master.groups if group.nats)


def _owned(items: Mapping[str, Json], uid: str) -> dict[str, Json]:
    return {name: item for name, item in items.items() if steps.is_owned(item, uid)}


def _shares(masters: list[_PlannedMaster]) -> Iterator[tuple[tuple[NatsSource, str], PoolShare]]:
    for _, master, plan in masters:
        sources = {group.name: group.nats.source for group in master.groups if group.nats}
        for pool in plan.pools:
            if pool.group in sources and pool.flavor:
                share = PoolShare(master.name, pool.effective)
                yield (sources[pool.group], pool.name), share
