"""All rows of docs/pods.md at once, at sites and on the bed's real node, to be compared."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterable
from typing import Any

from tests.e2e.outcomes import differences, forgotten, outcome
from tests.e2e.row import CLAIM, CLUSTER, EPHEMERAL, NO_PLACE, RUNTIMES
from tests.e2e.rows import ROWS
from tests.e2e.users import REAL_NODE, VIRTUAL_NODE, User, goes_to
from tests.support.kueue_bed import KueueBed

Json = dict[str, Any]
HERE = "here"
CLAIMS = (CLAIM, NO_PLACE, EPHEMERAL)


class Places:
    """All of the rows, in a namespace of its own for each site and one for the real node."""

    def __init__(self, bed: KueueBed, sites: Iterable[str]) -> None:
        name = uuid.uuid4().hex[:6]
        self.users = {place: User(bed, f"rows-{place}-{name}") for place in (HERE, *sites)}
        for place, user in self.users.items():
            needs = {need["metadata"]["name"]: need for row in ROWS.values() for need in row.needs}
            user.bed.apply(*(_volume(user.name, claim) for claim in CLAIMS))
            user.create(*needs.values(), *(_claim(user.name, claim) for claim in (CLAIM, NO_PLACE)))
            rows = [row for row in ROWS.values() if place != HERE or row.runs_somewhere]
            user.create(*(_placed(row.pod, place) for row in rows))

    def compare(self, site: str, name: str) -> None:
        """Wait for the end of a row, which has to be that on the real node but for its limits."""
        row = ROWS[name]
        refusal = row.refused.get(RUNTIMES[site])
        if refusal is not None:
            ended = self.users[site].until_ended(name, 300)["status"]
            assert ended["phase"] == "Failed" and refusal in str(ended), ended
            return
        here, there = self._outcome(HERE, name), self._outcome(site, name)
        unknown = forgotten(here) | (forgotten(there) if RUNTIMES[site] == CLUSTER else set())
        limits = row.limits(site)
        different = differences(here, there)
        known = limits.keys() | unknown
        unexplained = {what: pair for what, pair in different.items() if what not in known}
        assert unexplained == {}, f"on the real node, at {site}: {unexplained}"
        words = f"what docs/limits.md says does not hold: {here} {there}"
        assert limits.keys() <= different.keys() | unknown, words

    def _outcome(self, place: str, name: str) -> Json:
        self.users[place].until_ended(name, 300)
        return outcome(self.users[place], name)

    def leave(self) -> None:
        for user in self.users.values():
            user.go()
            volumes = [_volume_of(user.name, claim) for claim in CLAIMS]
            user.bed.kubectl("delete", "persistentvolume", *volumes, "--wait=false")


def _volume_of(namespace: str, claim: str) -> str:
    return f"{namespace}-{claim}"


def _volume(namespace: str, claim: str) -> Json:
    """What a claim is bound to on the real node: a directory in the bed's memory."""
    name = _volume_of(namespace, claim)
    spec = {
        "storageClassName": "",
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Mi"},
        "hostPath": {"path": f"/run/{name}", "type": "DirectoryOrCreate"},
        "claimRef": {"namespace": namespace, "name": claim},
    }
    metadata = {"name": name}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}


def _claim(namespace: str, claim: str) -> Json:
    spec = {
        "storageClassName": "",
        "accessModes": ["ReadWriteOnce"],
        "volumeName": _volume_of(namespace, claim),
        "resources": {"requests": {"storage": "1Mi"}},
    }
    metadata = {"name": claim}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def _placed(pod: Json, place: str) -> Json:
    pod = copy.deepcopy(pod)
    pod["metadata"]["labels"] = {"app": "row"}
    node = REAL_NODE if place == HERE else VIRTUAL_NODE
    pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    pod["spec"]["tolerations"] = [] if place == HERE else goes_to(place)
    return pod
