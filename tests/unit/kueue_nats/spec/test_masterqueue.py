"""MasterQueues as their authors wrote them: what is read, and what is refused in one line."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kueue_nats.spec import masterqueue
from kueue_nats.spec.errors import SpecError
from kueue_nats.spec.masterqueue import Lending, SecretRef
from tests.unit.kueue_nats import masters
from tests.unit.kueue_nats.masters import heard, lends, local, master, raw

CONNECTOR = "nats://user:password@nats.nats:4222"


def refused(given: Any) -> SpecError:
    with pytest.raises(SpecError) as caught:
        masterqueue.read(given)
    assert "\n" not in str(caught.value)
    return caught.value


# --- what users have ------------------------------------------------------------------------------


def test_the_manifest_that_users_have_reads_as_it_is() -> None:
    wanted = masters.manifest()
    assert (wanted.name, wanted.template.cohort) == ("masterqueue", "masterqueue")
    remote, there = wanted.groups
    assert (remote.name, there.name) == ("interlink", "local-cpu")
    assert remote.nats is not None
    assert there.nats is None
    assert remote.nats.source.connector == CONNECTOR
    assert remote.nats.source.subject == "interlink.resources"
    assert (remote.nats.virtual_node, remote.nats.timeout_s) == ("interlink", 30)
    for group in wanted.groups:
        assert group.nominal == {"pods": "100"}
        assert group.lends == (Lending("group1", {"pods": "30"}),)
        assert group.borrowing == {}
    assert (wanted.drain, wanted.evict_drained) == (frozenset(), False)


def test_the_manifest_needs_no_more_than_its_flavors() -> None:
    nats = master(heard()).groups[0].nats
    assert nats is not None
    assert nats.source == masters.SOURCE
    assert (nats.timeout_s, nats.rise_after_s, nats.fall_after_s) == (60, 10, 0)
    assert nats.return_after_s is None
    assert nats.virtual_node == ""


def test_what_the_api_server_adds_does_no_harm() -> None:
    given = masters.raw_manifest()
    given["metadata"].update(uid=masters.UID, generation=7, managedFields=[{"manager": "kubectl"}])
    given["status"] = {"pools": "whatever"}
    wanted = masterqueue.read(given)
    assert (wanted.uid, wanted.generation) == (masters.UID, 7)


# --- wrong fields ---------------------------------------------------------------------------------

WRONG = [
    # What is put where, the field that the line must name, and what it must say.
    (("metadata",), [], ".metadata", "an object"),
    (("metadata", "name"), None, "metadata.name", "must be a name"),
    (("metadata", "name"), "Master", "metadata.name", "must be a name"),
    (("metadata", "name"), 7, "metadata.name", "a string, not a number"),
    (("metadata", "annotations"), {"vk.io/drain": 1}, "annotations.vk.io/drain", "a string"),
    (("spec",), None, "spec.flavors", "at least one"),
    (("spec",), "x", ".spec", "an object, not a string"),
    (("spec", "flavors"), [], "spec.flavors", "at least one"),
    (("spec", "flavors"), {}, "spec.flavors", "a list, not an object"),
    (("spec", "flavors"), ["a"], "spec.flavors[0]", "an object"),
    (("spec", "template"), [], "spec.template", "an object"),
    (("spec", "drain"), "p", "spec.drain", "a list"),
    (("spec", "drain"), ["a", 1], "spec.drain[1]", "a string"),
    (("spec", "evictDrained"), "yes", "spec.evictDrained", "a boolean"),
    (("spec", "flavors", 0, "name"), None, "spec.flavors[0].name", "must be 1 to 63"),
    (("spec", "flavors", 0, "name"), "a.b", "spec.flavors[0].name", "must be 1 to 63"),
    (("spec", "flavors", 0, "name"), "a" * 64, "spec.flavors[0].name", "must be 1 to 63"),
    (("spec", "flavors", 1, "name"), "A", "spec.flavors[1].name", "the name of a ResourceFlavor"),
    (("spec", "flavors", 1, "name"), "interlink", "spec.flavors[1].name", "is that of flavors[0]"),
    (("spec", "flavors", 1, "localFlavor"), None, "spec.flavors[1]", "exactly one of natsFlavor"),
    (("spec", "flavors", 1, "localFlavor"), 5, "spec.flavors[1].localFlavor", "an object"),
    (("spec", "flavors", 0, "localFlavor"), {}, "spec.flavors[0]", "exactly one of natsFlavor"),
    (("spec", "flavors", 0, "natsFlavor"), [], "spec.flavors[0].natsFlavor", "an object"),
    (("spec", "flavors", 0, "nominalQuota"), [], "spec.flavors[0].nominalQuota", "an object"),
    (
        ("spec", "flavors", 0, "nominalQuota"),
        {"pods": "many"},
        "spec.flavors[0].nominalQuota['pods']",
        "not a quantity: many",
    ),
    (
        ("spec", "flavors", 0, "nominalQuota"),
        {"pods": True},
        "spec.flavors[0].nominalQuota['pods']",
        "a quantity, not a boolean",
    ),
    (
        ("spec", "flavors", 0, "borrowingLimit"),
        {"pods": "-1"},
        "spec.flavors[0].borrowingLimit['pods']",
        "must not be negative",
    ),
    (
        ("spec", "flavors", 0, "nominalQuota"),
        {"nvidia.com/gpu ": 1},
        "spec.flavors[0].nominalQuota['nvidia.com/gpu ']",
        "is not the name of a resource",
    ),
    (("spec", "flavors", 0, "canLendTo"), {}, "spec.flavors[0].canLendTo", "a list"),
    (
        ("spec", "flavors", 0, "canLendTo", 0, "queue"),
        None,
        "spec.flavors[0].canLendTo[0].queue",
        "the name of a ClusterQueue",
    ),
    (
        ("spec", "flavors", 0, "canLendTo", 0, "queue"),
        "masterqueue",
        "spec.flavors[0].canLendTo[0].queue",
        "own queue",
    ),
    (
        ("spec", "flavors", 0, "canLendTo"),
        [{"queue": "a"}, {"queue": "b"}, {"queue": "a"}],
        "spec.flavors[0].canLendTo[2].queue",
        "a is there twice",
    ),
    (
        ("spec", "flavors", 0, "canLendTo", 0, "lendingLimit"),
        {"pods": "1x"},
        "spec.flavors[0].canLendTo[0].lendingLimit['pods']",
        "not a quantity: 1x",
    ),
    (
        ("spec", "flavors", 0, "canLendTo"),
        [{"queue": f"q{i}"} for i in range(65)],
        "spec.flavors[0].canLendTo",
        "at most 64",
    ),
    (
        ("spec", "flavors"),
        [local(f"l{i}") for i in range(65)],
        "spec.flavors",
        "at most 64",
    ),
]
WRONG_NATS = [
    ("pools", ["a"], "", "exactly one of pools and poolRegExp"),
    ("poolRegExp", None, "", "exactly one of pools and poolRegExp"),
    ("poolRegExp", "", "", "exactly one of pools and poolRegExp"),
    ("poolRegExp", "(", ".poolRegExp", "is not a regular expression of Python's"),
    ("poolRegExp", "a{99999999999999}", ".poolRegExp", "is not a regular expression of Python's"),
    ("poolRegExp", "(" * 1000, ".poolRegExp", "is not a regular expression of Python's"),
    ("poolRegExp", ["a"], ".poolRegExp", "a string"),
    ("pools", "a", ".pools", "a list"),
    ("poolTimeout", 0, ".poolTimeout", "from 1 to 86400"),
    ("poolTimeout", 86401, ".poolTimeout", "from 1 to 86400"),
    ("poolTimeout", 1.5, ".poolTimeout", "a whole number, not 1.5"),
    ("poolTimeout", "30s", ".poolTimeout", "a whole number"),
    ("poolTimeout", True, ".poolTimeout", "a whole number"),
    ("riseAfter", -1, ".riseAfter", "from 0"),
    ("fallAfter", 10**6, ".fallAfter", "from 0 to 86400"),
    ("returnAfter", 86401, ".returnAfter", "from 0 to 86400"),
    ("virtualNode", 1, ".virtualNode", "a string"),
    ("virtualNode", "My Node", ".virtualNode", "a node's name"),
    ("virtualNode", "n" * 64, ".virtualNode", "at most 63"),
    ("natsSubject", "a..b", ".natsSubject", "each part"),
    ("natsSubject", "a.*", ".natsSubject", "each part"),
    ("natsSubject", "", ".natsSubject", "each part"),
    ("natsConnector", 4222, ".natsConnector", "a string"),
    ("natsConnector", "user:password@nats", ".natsConnector", "must begin with"),
    ("natsConnector", "nats://a,http://u:password@b", ".natsConnector", "must begin with"),
    ("natsConnectorSecretRef", [], ".natsConnectorSecretRef", "an object"),
    ("natsConnectorSecretRef", {"name": "s"}, ".natsConnectorSecretRef.key", "is missing"),
    ("natsConnectorSecretRef", {"key": "s"}, ".natsConnectorSecretRef.name", "is missing"),
    ("natsConnectorSecretRef", {"name": 1}, ".natsConnectorSecretRef.name", "a string"),
]


@pytest.mark.parametrize(("path", "value", "where", "what"), WRONG)
def test_a_wrong_field_is_one_line_that_names_it(
    path: tuple[Any, ...], value: object, where: str, what: str
) -> None:
    given = masters.raw_manifest()
    *holders, last = path
    holder: Any = given
    for key in holders:
        holder = holder[key]
    holder[last] = value
    error = refused(given)
    assert error.field == where
    assert what in error.reason


@pytest.mark.parametrize(("key", "value", "where", "what"), WRONG_NATS)
def test_so_is_one_of_a_nats_flavor(key: str, value: object, where: str, what: str) -> None:
    given = masters.raw_manifest()
    given["spec"]["flavors"][0]["natsFlavor"][key] = value
    error = refused(given)
    assert error.field == f"spec.flavors[0].natsFlavor{where}"
    assert what in error.reason


def test_pools_are_names_and_each_is_there_once() -> None:
    error = refused(raw(heard(nats={"pools": ["a", "b.c"]})))
    assert error.field == "spec.flavors[0].natsFlavor.pools[1]"
    error = refused(raw(heard(nats={"pools": ["a", "b", "a"]})))
    assert error.field == "spec.flavors[0].natsFlavor.pools"
    assert "twice" in error.reason


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["nats://u:s3cret@h", "s3cret", "1e400", ".*", "Stop", "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=5,
)
PLACES: list[tuple[Any, ...]] = [path for path, *_ in WRONG]
PLACES += [("spec", "flavors", 0, "natsFlavor", key) for key, *_ in WRONG_NATS]
PLACES += [
    ("spec", "template", key)
    for key in (
        *("cohort", "cohortName", "flavorFungibility", "preemption", "namespaceSelector"),
        *("queueingStrategy", "stopPolicy", "admissionChecks", "admissionChecksStrategy"),
        "fairSharing",
    )
]


@given(path=st.sampled_from(PLACES), value=JSON)
def test_anything_at_all_is_read_or_refused_in_one_line(path: tuple[Any, ...], value: Any) -> None:
    given = copy.deepcopy(masters.raw_manifest())
    *holders, last = path
    holder: Any = given
    for key in holders:
        holder = holder[key]
    holder[last] = value
    try:
        masterqueue.read(given)
    except SpecError as error:
        assert error.field
        assert "\n" not in str(error)


# --- single fields --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "pool", "wanted"),
    [
        (".*", "anything", True),
        ("a", "a", True),
        ("a", "ab", False),
        ("a", "ba", False),
        ("a|ab", "ab", True),
        ("^a$", "a", True),
        ("gpu-[0-9]+", "gpu-12", True),
        ("gpu-[0-9]+", "gpu-12x", False),
        ("(?i)cnaf", "CNAF", True),
        ("cnaf", "CNAF", False),
        ("(?!test).*", "test-1", False),
    ],
)
def test_a_pattern_is_for_the_whole_name(pattern: str, pool: str, wanted: bool) -> None:
    nats = master(heard(nats={"poolRegExp": pattern})).groups[0].nats
    assert nats is not None
    assert nats.matches(pool) is wanted


def test_a_list_names_its_pools() -> None:
    nats = master(heard(nats={"pools": ["b", "a"]})).groups[0].nats
    assert nats is not None
    assert nats.pools == ("b", "a")
    assert [nats.matches(pool) for pool in ("a", "b", "ab", "")] == [True, True, False, False]


@pytest.mark.parametrize(
    ("spec", "annotation", "drained"),
    [
        (None, None, set()),
        (["a"], None, {"a"}),
        (None, "a", {"a"}),
        (["a"], " b , c,", {"a", "b", "c"}),
        (["a"], "", {"a"}),
        ([], " , ", set()),
    ],
)
def test_pools_are_drained_by_the_spec_and_by_an_annotation(
    spec: list[str] | None, annotation: str | None, drained: set[str]
) -> None:
    given = raw(heard(), drain=spec)
    given["metadata"]["annotations"] = {"vk.io/drain": annotation, "other": "x"}
    assert masterqueue.read(given).drain == drained


def test_quantities_may_be_numbers() -> None:
    group = master(heard(nominalQuota={"pods": 100, "cpu": 1.5, "memory": "1Gi"})).groups[0]
    assert group.nominal == {"pods": "100", "cpu": "1.5", "memory": "1Gi"}


def test_lending_limits_are_kept_by_queue() -> None:
    flavor = heard(canLendTo=[lends("a", cpu=1), {"queue": "b.c"}])
    assert master(flavor).groups[0].lends == (Lending("a", {"cpu": "1"}), Lending("b.c", {}))


# --- connectors and their passwords ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "connector"),
    [
        ("", ""),
        (" , ", ""),
        ("nats://a", "nats://a"),
        (" nats://a:1 , wss://b/x,", "nats://a:1,wss://b/x"),
        ("tls://a", "tls://a"),
        ("ws://a", "ws://a"),
    ],
)
def test_a_connector_is_urls_with_commas_in_between(text: str, connector: str) -> None:
    nats = master(heard(nats={"natsConnector": text})).groups[0].nats
    assert nats is not None
    assert nats.source.connector == connector


def test_equal_connectors_are_one_source() -> None:
    one, other = (
        master(heard(nats={"natsConnector": text})).groups[0].nats
        for text in ("nats://a,nats://b", "nats://a, nats://b ")
    )
    assert one is not None
    assert other is not None
    assert one.source == other.source


def test_a_password_can_be_in_a_secret() -> None:
    ref = {"name": "nats", "key": "password"}
    nats = master(heard(nats={"natsConnectorSecretRef": ref})).groups[0].nats
    assert nats is not None
    assert nats.source.secret == SecretRef("nats", "password")


def test_no_representation_shows_a_password() -> None:
    wanted = masters.manifest()
    assert wanted.groups[0].nats is not None
    for shown in (wanted, wanted.groups, wanted.groups[0].nats, wanted.groups[0].nats.source):
        assert "password" not in repr(shown)
        assert "password" not in str(shown)
        assert "password" not in f"{shown}"


@pytest.mark.parametrize(
    "connector",
    [
        "user:s3cret@host",
        "http://user:s3cret@host",
        "nats:/user:s3cret@host",
        "nats://a,user:s3cret@host",
        "s3cret",
    ],
)
def test_no_error_shows_a_password(connector: str) -> None:
    error = refused(raw(heard(nats={"natsConnector": connector})))
    assert "s3cret" not in str(error)
    assert "s3cret" not in repr(error)
    assert error.field.endswith(".natsConnector")


@given(
    password=st.text(st.characters(codec="utf-8"), min_size=8, max_size=20),
    path=st.sampled_from(PLACES),
)
def test_no_mistake_elsewhere_shows_a_password(password: str, path: tuple[Any, ...]) -> None:
    given = masters.raw_manifest()
    given["spec"]["flavors"][0]["natsFlavor"]["natsConnector"] = f"nats://u:s3cret{password}@h"
    *holders, last = path
    holder: Any = given
    for key in holders:
        holder = holder[key]
    holder[last] = 3.5
    try:
        masterqueue.read(given)
    except SpecError as error:
        assert "s3cret" not in repr(error)
