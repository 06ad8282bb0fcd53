"""The rows of docs/pods.md, at a site and on the bed's real node: same manifests, same end."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.conftest import SITES
from tests.e2e.outcomes import outcome
from tests.e2e.rows import ROWS
from tests.e2e.users import REAL_NODE, VIRTUAL_NODE, User, goes_to
from tests.kueue_bed import KueueBed

Json = dict[str, Any]
HERE = "here"


class Places:
    """All of the rows, in a namespace of its own for each site and one for the real node."""

    def __init__(self, bed: KueueBed) -> None:
        name = uuid.uuid4().hex[:6]
        self.users = {place: User(bed, f"rows-{place}-{name}") for place in (HERE, *SITES)}
        for place, user in self.users.items():
            needs = {need["metadata"]["name"]: need for row in ROWS.values() for need in row.needs}
            user.create(*needs.values())
            user.create(*(_placed(row.pod, place) for row in ROWS.values()))

    def outcome(self, place: str, name: str) -> Json:
        self.users[place].until_ended(name, 300)
        return outcome(self.users[place], name)

    def leave(self) -> None:
        for user in self.users.values():
            user.leave()


def _placed(pod: Json, place: str) -> Json:
    pod = copy.deepcopy(pod)
    pod["metadata"]["labels"] = {"app": "row"}
    node = REAL_NODE if place == HERE else VIRTUAL_NODE
    pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    pod["spec"]["tolerations"] = [] if place == HERE else goes_to(place)
    return pod


@pytest.fixture(scope="module")
def places(chain: KueueBed) -> Iterator[Places]:
    found = Places(chain)
    yield found
    found.leave()


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("site", SITES)
def test_a_row_ends_as_on_a_real_node(places: Places, site: str, name: str) -> None:
    real, ours = places.outcome(HERE, name), places.outcome(site, name)
    different = {
        what: (real.get(what), ours.get(what))
        for what in sorted({*real, *ours})
        if real.get(what) != ours.get(what)
    }
    assert different == {}, f"on the real node, at {site}: {different}"
