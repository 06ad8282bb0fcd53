"""A cluster of objects in memory, for what cannot be watched on a real one: every single write.

It does with objects what the API server and Kueue do: a flavor in use only begins to go, an owner
that goes takes along what it owns, quantities come back in another notation. Kueue hears of a
flavor between the first two looks at it, and lets go of none while it is deaf. It notes every write
that was not safe: a queue that names a flavor which is not there, is on its way out, or which Kueue
has not heard of; and the end of a flavor which a queue named at the last look.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from typing import Any, Optional

from kueue_nats.plan.actions import named_flavors
from kueue_nats.plan.objects import FLAVORS, NEW, QUEUES
from kueue_nats.spec.errors import Conflicting, KueueClientError, NotFound, Rejected

IN_USE = "kueue.x-k8s.io/resource-in-use"  # Kueue's finalizer

Json = dict[str, Any]


class ClusterInMemory:
    """As ``kueue_nats.kube.client.KueueClient``, as far as a round needs it."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Json]] = {FLAVORS: {}, QUEUES: {}}
        self.owners: dict[str, Json] = {}
        self.secrets: dict[tuple[str, str], str] = {}
        self.waiting: list[Json] = []  # Workloads
        self.events: list[Json] = []
        self.failures: list[KueueClientError] = []  # of the next writes
        self.log: list[str] = []
        self.unsafe: list[str] = []
        self.named: set[str] = set()  # flavors in queues at the last look
        self.deaf = False
        self._unheard: set[str] = set()  # uids of flavors that Kueue has not heard of
        self._looked_at: set[str] = set()  # uids of flavors at the last look
        self.version = NEW
        self.writes = 0
        self._numbers = itertools.count(1)

    # --- reading --------------------------------------------------------------------------------

    def kueue_version(self) -> str:
        if not self.version:
            raise NotFound("Kueue", "is it installed?")
        return self.version

    def masters(self) -> list[Json]:
        return copy.deepcopy([*self.owners.values()])

    def listed(self, plural: str, version: str) -> dict[str, Json]:
        if not self.version:
            raise NotFound(f"listing {plural}", "there is no such kind")
        if plural == FLAVORS:
            self._hear()
        self.named = named_flavors(self.objects[QUEUES].values())
        return copy.deepcopy(self.objects[plural])

    def workloads(self, version: str) -> list[Json]:
        return copy.deepcopy(self.waiting)

    def pods_of_jobs(self) -> list[Json]:
        return []

    def secret(self, namespace: str, name: str, key: str) -> str:
        try:
            return self.secrets[name, key]
        except KeyError:
            raise NotFound(f"Secret {namespace}/{name}", "not found") from None

    # --- writing --------------------------------------------------------------------------------

    def apply(self, plural: str, body: Json, *, dry_run: bool = False) -> None:
        name = body["metadata"]["name"]
        self._write(f"apply {plural}/{name}")
        there = self.objects[plural].get(name)
        made = copy.deepcopy(body)
        made["metadata"].update(self._metadata(plural, there))
        for quota in _quotas(made):
            quota["nominalQuota"] = f"{quota['nominalQuota']}.0"  # the same, written otherwise
        made["spec"].setdefault("addedByTheServer", {})
        self.objects[plural][name] = made
        self._check(name if plural == QUEUES else "")

    def delete(self, plural: str, version: str, item: Json) -> None:
        name = item["metadata"]["name"]
        self._write(f"delete {plural}/{name}")
        there = self.objects[plural].get(name)
        if there is None or there["metadata"]["uid"] != item["metadata"]["uid"]:
            raise Conflicting(f"{plural}/{name}", "another one")
        if plural == FLAVORS and name in self.named:
            self.unsafe.append(f"{self.log[-1]}: a queue named it at the last look")
        if there["metadata"].get("finalizers"):
            there["metadata"]["deletionTimestamp"] = "now"
        else:
            del self.objects[plural][name]
        self._check()

    def write_status(self, name: str, status: Json, resource_version: str) -> None:
        self._write(f"status {name}")
        self.owners[name]["status"] = copy.deepcopy(status)

    def write_event(self, body: Json) -> None:
        self._write("event")
        self.events.append(body)

    def patch_workload(self, version: str, namespace: str, name: str, body: Json) -> None:
        self._write(f"workload {name}")

    # --- what others do -------------------------------------------------------------------------

    def set_master(self, raw: Json) -> None:
        """An admin applies it."""
        name = raw["metadata"]["name"]
        status = self.owners.get(name, {}).get("status")
        self.owners[name] = copy.deepcopy(raw)
        if status is not None:
            self.owners[name]["status"] = status

    def drop_master(self, name: str) -> None:
        """An admin deletes it, and the garbage collector does its work."""
        uid = self.owners.pop(name)["metadata"]["uid"]
        for plural in (QUEUES, FLAVORS):
            for item in [*self.objects[plural].values()]:
                if any(ref["uid"] == uid for ref in item["metadata"].get("ownerReferences", ())):
                    del self.objects[plural][item["metadata"]["name"]]

    def put(self, plural: str, name: str, spec: Optional[Json] = None) -> None:
        """An admin makes an object of their own."""
        metadata = {"name": name, **self._metadata(plural, None)}
        self.objects[plural][name] = {"metadata": metadata, "spec": spec or {}}

    # --- rules ----------------------------------------------------------------------------------

    def _write(self, what: str) -> None:
        self.writes += 1
        self.log.append(what)
        if self.failures:
            raise self.failures.pop(0)

    def _metadata(self, plural: str, there: Optional[Json]) -> Json:
        """What the API server and Kueue's webhook give an object that is made or changed."""
        version = str(next(self._numbers))
        if there is not None:
            kept = ("uid", "finalizers", "deletionTimestamp")
            old = there["metadata"]
            return {"resourceVersion": version, **{key: old[key] for key in kept if key in old}}
        uid = f"u{version}"
        if plural != FLAVORS:
            return {"resourceVersion": version, "uid": uid}
        self._unheard.add(uid)
        return {"resourceVersion": version, "uid": uid, "finalizers": [IN_USE]}

    def _hear(self) -> None:
        """Kueue hears of flavors, and lets go of those that are deleted and that nobody names."""
        self._unheard -= self._looked_at
        self._looked_at = {flavor["metadata"]["uid"] for flavor in self.objects[FLAVORS].values()}
        if self.deaf:
            return
        named = named_flavors(self.objects[QUEUES].values())
        for name, flavor in [*self.objects[FLAVORS].items()]:
            if "deletionTimestamp" in flavor["metadata"] and name not in named:
                del self.objects[FLAVORS][name]

    def _check(self, applied: str = "") -> None:
        for queue, item in self.objects[QUEUES].items():
            for flavor in named_flavors([item]):
                there = self.objects[FLAVORS].get(flavor)
                if there is None:
                    self.unsafe.append(
                        f"{self.log[-1]}: {queue} names {flavor}, which is not there"
                    )
                elif queue == applied and "deletionTimestamp" in there["metadata"]:
                    self.unsafe.append(f"{self.log[-1]}: {queue} names {flavor}, which is going")
                elif there["metadata"]["uid"] in self._unheard:
                    self.unsafe.append(f"{self.log[-1]}: Kueue does not know {queue}'s {flavor}")
            for group in item["spec"].get("resourceGroups", ()):
                if not group["flavors"]:
                    raise Rejected(queue, "flavors in body should have at least 1 items")


def _quotas(item: Json) -> Iterator[Json]:
    for group in item["spec"].get("resourceGroups", ()):
        for flavor in group["flavors"]:
            yield from (r for r in flavor["resources"] if str(r["nominalQuota"]).isdigit())
