"""The API server knows a wrong MasterQueue, and says what is wrong with it; ours says the same."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kueue_nats.spec import masterqueue
from kueue_nats.spec.errors import SpecError
from tests.support.kueue_operator import World

REMOTE = {"name": "remote", "natsFlavor": {"poolRegExp": ".*"}}
LOCAL = {"name": "local", "localFlavor": {}}

# What is wrong, where both say it is, and a word of the API server's.
WRONG = [
    ({"flavors": []}, "spec.flavors", "should have at least 1"),
    ({"flavors": [{"name": "neither"}]}, "spec.flavors[0]", "exactly one of natsFlavor"),
    ({"flavors": [{**REMOTE, "localFlavor": {}}]}, "spec.flavors[0]", "exactly one of natsFlavor"),
    ({"flavors": [REMOTE, REMOTE]}, "spec.flavors[1]", "Duplicate value"),
    ({"flavors": [{**REMOTE, "name": "a.b"}]}, "spec.flavors[0]", "1 to 63 lower-case letters"),
    ({"flavors": [{**REMOTE, "name": "Upper"}]}, "spec.flavors[0].name", "should match"),
    (
        {"flavors": [{"name": "r", "natsFlavor": {}}]},
        "spec.flavors[0].natsFlavor",
        "exactly one of pools and poolRegExp",
    ),
    (
        {"flavors": [{"name": "r", "natsFlavor": {"poolRegExp": ".*", "pools": ["a"]}}]},
        "spec.flavors[0].natsFlavor",
        "exactly one of pools and poolRegExp",
    ),
    (
        {"flavors": [{"name": "r", "natsFlavor": {"pools": ["a.b"]}}]},
        "spec.flavors[0].natsFlavor.pools[0]",
        "should match",
    ),
    (
        {"flavors": [{"name": "r", "natsFlavor": {"poolRegExp": ".*", "poolTimeout": 0}}]},
        "spec.flavors[0].natsFlavor.poolTimeout",
        "greater than or equal to 1",
    ),
    ({"flavors": [{**REMOTE, "nominalQuota": {"cpu": "many"}}]}, "nominalQuota", "should match"),
    ({"flavors": [{**REMOTE, "nominalQuota": {"cpu": -1}}]}, "nominalQuota", "or equal to 0"),
    (
        {"flavors": [{**REMOTE, "canLendTo": [{"queue": "a"}, {"queue": "a"}]}]},
        "spec.flavors[0].canLendTo[1]",
        "Duplicate value",
    ),
    (
        {"flavors": [{**REMOTE, "canLendTo": [{"lendingLimit": {}}]}]},
        "spec.flavors[0].canLendTo[0].queue",
        "Required value",
    ),
    (
        {"flavors": [LOCAL], "template": {"stopPolicy": "Stop"}},
        "spec.template.stopPolicy",
        "Stop was meant to be Hold",
    ),
    (
        {"flavors": [LOCAL], "template": {"queueingStrategy": "FIFO"}},
        "spec.template.queueingStrategy",
        "Unsupported value",
    ),
    (
        {"flavors": [LOCAL], "template": {"cohort": "a", "cohortName": "b"}},
        "spec.template",
        "two names of the same field",
    ),
    ({"flavors": [LOCAL], "drain": [""]}, "spec.drain[0]", "should be at least 1 chars long"),
]


@pytest.mark.parametrize(("spec", "where", "words"), WRONG, ids=lambda value: str(value)[:60])
def test_what_is_wrong_is_refused_with_its_place(
    world: World, spec: dict[str, Any], where: str, words: str
) -> None:
    raw = {
        "apiVersion": "vk.io/v1",
        "kind": "MasterQueue",
        "metadata": {"name": world.name},
        "spec": spec,
    }
    refusal = world.refusal(raw)
    assert words in refusal
    assert where in refusal
    with pytest.raises(SpecError) as ours:  # `kueue-nats plan` has no API server to ask
        masterqueue.read(copy.deepcopy(raw))
    assert where in ours.value.field


def test_defaults_are_those_of_the_code(world: World) -> None:
    name = world.master([{"name": "remote", "natsFlavor": {"poolRegExp": ".*"}}])
    defaulted = world.bed.get("masterqueue", name)
    bare = copy.deepcopy(defaulted)
    bare["spec"]["flavors"] = [{"name": "remote", "natsFlavor": {"poolRegExp": ".*"}}]
    assert masterqueue.read(defaulted) == masterqueue.read(bare)
    assert defaulted["spec"]["flavors"] != bare["spec"]["flavors"]


def test_a_pattern_that_only_python_can_judge_is_told_in_the_status(world: World) -> None:
    world.master([{"name": "remote", "natsFlavor": {**world.nats_flavor(), "poolRegExp": "a(b"}}])
    ready = world.pools.until(
        lambda: (c := world.condition("Ready")).get("reason") == "InvalidSpec" and c, 60, "words"
    )
    assert "spec.flavors[0].natsFlavor.poolRegExp: is not a regular expression" in ready["message"]


def test_kubectl_shows_what_matters(world: World) -> None:
    world.master([{"name": "remote", "natsFlavor": world.nats_flavor()}])
    world.pools.offer("site", cpu=4, memory="4Gi", pods=4)
    world.until_pool("site", "Active")
    table = world.bed.kubectl("get", "mq", world.name, "--output=wide")
    head, row = (line.split("  ") for line in table.strip().splitlines())
    head, row = ([cell.strip() for cell in line if cell.strip()] for line in (head, row))
    shown = dict(zip(head, row))
    assert shown["POOLS"] == "1/1"
    assert shown["USAGE"] == "cpu 0/4, memory 0/4Gi, pods 0/4"
    assert (shown["READY"], shown["REASON"], shown["NATS"]) == ("True", "Reconciled", "True")
    described = world.bed.kubectl("describe", "mq", world.name)
    assert "PoolActive" in described
    assert "offers cpu 4, memory 4Gi, pods 4" in described
