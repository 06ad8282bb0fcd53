"""Reconciler: one round brings the cluster nearer to what each MasterQueue asks for."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Optional

from kueue_nats import (
    drafts,
    events,
    judging,
    model,
    planning,
    remembering,
    reporting,
    sharing,
    steps,
    usage,
)
from kueue_nats.cluster import Cluster
from kueue_nats.errors import ClusterError, NotFound, SpecError, Unreachable
from kueue_nats.giving_back import Requeuer
from kueue_nats.kueue_objects import FLAVORS, QUEUES, owner_reference
from kueue_nats.listening import connection_settings
from kueue_nats.model import MasterQueue, NatsSource
from kueue_nats.offers import current_offers
from kueue_nats.planning import Plan
from kueue_nats.remembering import Clock, ExistingObjects, Records
from kueue_nats.reporting import FALSE, READY, Condition, StatusInput
from kueue_nats.sharing import PoolShare
from kueue_nats.steps import Actions
from templates.link_settings import LinkSettings
from templates.program_settings import Nats

logger = logging.getLogger(__name__)

Json = dict[str, Any]


class RoundInput(NamedTuple):
    """Input of a round: what was heard until now."""

    records: Records
    troubles: Mapping[NatsSource, str]  # why a source cannot be heard; empty: it can
    clock: Clock


class RoundResult(NamedTuple):
    """Result of a round: what it asks of the listener."""

    sources: Mapping[NatsSource, LinkSettings]
    wanted: frozenset[
        NatsSource
    ]  # those that cannot be reached, too: what was heard there counts on
    remembered: Records
    again: bool  # something was written that the next step waits for


class _Snapshot(NamedTuple):
    """Snapshot of the cluster's objects."""

    version: str
    flavors: Mapping[str, Json]
    queues: Mapping[str, Json]


class _PlannedMaster(NamedTuple):
    """MasterQueue that could be read, with its plan."""

    raw: Json
    wanted: MasterQueue
    plan: Plan


class Reconciler:
    """Reconciler of all MasterQueues.

    What it keeps from round to round only saves calls; all that matters is in the cluster.
    """

    def __init__(self, cluster: Cluster, own: Nats, namespace: str, *, strict: bool) -> None:
        self._cluster, self._own, self._namespace = cluster, own, namespace
        self._strict = strict
        self._version = ""
        self._known: set[tuple[str, frozenset[NatsSource]]] = set()  # planned in the last round
        self._written: dict[str, float] = {}
        self._taken: dict[str, Optional[Actions]] = {}  # in the last round
        self._seen: frozenset[str] = frozenset()  # uids of the flavors at the last look
        self._giving_back = Requeuer(cluster)

    def sources(self, clock: Clock) -> Mapping[NatsSource, LinkSettings]:
        """Return where pools are to be heard, before anything is done."""
        return self._sources(wanted for _, wanted in self._readable(clock))[0]

    def round(self, look: RoundInput) -> RoundResult:
        """Reconcile all MasterQueues once; raises ``Unreachable`` when the cluster is."""
        readable = list(self._readable(look.clock))
        sources, unreached = self._sources(wanted for _, wanted in readable)
        every = frozenset((*sources, *unreached))
        try:
            there = self._look()
        except NotFound as error:
            for raw, _ in readable:
                self._failed(raw, Condition(READY, FALSE, "KueueMissing", str(error)), look.clock)
            return RoundResult(sources, every, {}, False)
        remembered = self._remembered(readable, there, look.clock)
        records = {**remembered, **look.records}
        look = look._replace(records=records, troubles={**look.troubles, **unreached})
        masters = [
            _PlannedMaster(raw, wanted, self._planned(wanted, look, there))
            for raw, wanted in readable
        ]
        notes = sharing.notes(_shares(masters), records)
        again = [self._one(master, look, there, notes) for master in masters]
        pairs = [(master.wanted, master.plan) for master in masters]
        self._giving_back.go_on(pairs, records, look.clock.now_s, there.version)
        self._known = {_heard_at(wanted) for _, wanted in readable}
        self._seen = frozenset(str(f["metadata"]["uid"]) for f in there.flavors.values())
        return RoundResult(sources, every, remembered, any(again))

    # --- looking --------------------------------------------------------------------------------

    def _look(self) -> _Snapshot:
        self._version = self._version or self._cluster.kueue_version()
        try:
            flavors = self._cluster.listed(FLAVORS, self._version)
            return _Snapshot(self._version, flavors, self._cluster.listed(QUEUES, self._version))
        except NotFound:
            self._version = ""  # Kueue was replaced: the next round finds out
            raise

    def _readable(self, clock: Clock) -> Iterator[tuple[Json, MasterQueue]]:
        for raw in self._cluster.masters():
            if "deletionTimestamp" in raw["metadata"]:
                continue
            try:
                yield raw, model.read(raw)
            except SpecError as error:
                self._failed(raw, Condition(READY, FALSE, "InvalidSpec", str(error)), clock)

    def _remembered(
        self, readable: list[tuple[Json, MasterQueue]], there: _Snapshot, clock: Clock
    ) -> Records:
        found: Records = {}
        for raw, wanted in readable:
            queue = there.queues.get(wanted.name)
            if _heard_at(wanted) not in self._known and queue is not None:
                mine = _owned(there.flavors, wanted.uid)
                status = raw.get("status") or {}
                place = ExistingObjects(mine, queue)
                found.update(remembering.records(wanted, status, place, clock, strict=self._strict))
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
            except (SpecError, ClusterError) as error:
                unreached[source] = str(error)
        return sources, unreached

    def _secret(self, source: NatsSource) -> str:
        ref = source.secret
        return self._cluster.secret(self._namespace, ref.name, ref.key) if ref else ""

    # --- one MasterQueue ------------------------------------------------------------------------

    def _planned(self, wanted: MasterQueue, look: RoundInput, there: _Snapshot) -> Plan:
        heard = {
            group.name: current_offers(look.records, group.nats, look.clock.now_s)
            for group in wanted.groups
            if group.nats is not None
        }
        uid = wanted.uid
        local = [name for name, item in there.flavors.items() if not steps.is_owned(item, uid)]
        return planning.plan(wanted, heard, local)

    def _one(
        self,
        master: _PlannedMaster,
        look: RoundInput,
        there: _Snapshot,
        shared: Mapping[tuple[NatsSource, str], str],
    ) -> bool:
        wanted, plan = master.wanted, master.plan
        usable = steps.usable_flavors(plan, wanted.uid, there.flavors)
        known = steps.known_flavors(usable, self._seen, wanted.uid, there.flavors, there.queues)
        made = drafts.objects(plan, owner_reference(master.raw), there.version, known)
        todo = steps.diff_actions(made, wanted.uid, there.flavors, there.queues)
        undone = [step.name for step in todo.todo] if self._taken.get(wanted.uid) == todo else []
        refused = self._take(todo, wanted.name, there.version)
        self._taken[wanted.uid] = None if refused else todo
        if (todo.todo or known < usable) and not refused and not undone:
            return True  # its status is told when there is nothing more to do
        notes = judging.notes(wanted, look.records, look.clock, shared)
        seen = StatusInput(
            generation=wanted.generation,
            words=(
                judging.ready(plan, todo, (refused, undone), there.queues),
                judging.connected(wanted, look.troubles),
                reporting.health(plan.pools, notes),
            ),
            heard=dict(judging.heard(wanted, look.records)),
            usage=usage.of_plan(plan, there.queues),
            notes=notes,
        )
        before = master.raw.get("status") or {}
        self._tell(master.raw, reporting.status(plan, seen, before, look.clock.now), look.clock)
        return False

    def _take(self, todo: Actions, name: str, version: str) -> list[str]:
        """Carry out all actions; return the errors of those that were refused."""
        refused = []
        for step in todo.todo:
            try:
                if step.verb == steps.APPLY:
                    self._cluster.apply(step.plural, dict(step.body))
                else:
                    self._cluster.delete(step.plural, version, step.body)
                logger.info("MasterQueue %s: %s %s/%s", name, step.verb, step.plural, step.name)
            except Unreachable:
                raise
            except ClusterError as error:
                refused.append(str(error))
        return refused

    # --- its status -----------------------------------------------------------------------------

    def _failed(self, raw: Json, word: Condition, clock: Clock) -> None:
        before = raw.get("status") or {}
        generation = raw["metadata"].get("generation", 0)
        self._tell(raw, reporting.failed(word, generation, before, clock.now), clock)

    def _tell(self, raw: Json, status: Json, clock: Clock) -> None:
        """Write a status that has changed, and Events of the changes."""
        name, uid = raw["metadata"]["name"], raw["metadata"]["uid"]
        before = raw.get("status") or {}
        age = clock.now_s - self._written.get(uid, float("-inf"))
        if not reporting.must_be_written(status, before, age):
            return
        try:
            self._cluster.write_status(name, status, raw["metadata"]["resourceVersion"])
            self._written[uid] = clock.now_s
            for event in events.between(before, status):
                logger.info("MasterQueue %s: %s: %s", name, event.reason, event.message)
                self._cluster.write_event(events.body(event, raw, clock.now))
        except Unreachable:
            raise
        except ClusterError as error:
            logger.warning("MasterQueue %s: %s", name, error)  # the next round tries again


# --- pure parts -----------------------------------------------------------------------------------


def _heard_at(wanted: MasterQueue) -> tuple[str, frozenset[NatsSource]]:
    """Return whose pools are heard where; those of a new entry are restored from the cluster."""
    return wanted.uid, frozenset(group.nats.source for group in wanted.groups if group.nats)


def _owned(items: Mapping[str, Json], uid: str) -> dict[str, Json]:
    return {name: item for name, item in items.items() if steps.is_owned(item, uid)}


def _shares(masters: list[_PlannedMaster]) -> Iterator[tuple[tuple[NatsSource, str], PoolShare]]:
    for master in masters:
        sources = {group.name: group.nats.source for group in master.wanted.groups if group.nats}
        for pool in master.plan.pools:
            if pool.group in sources and pool.flavor:
                share = PoolShare(master.wanted.name, pool.effective)
                yield (sources[pool.group], pool.name), share
