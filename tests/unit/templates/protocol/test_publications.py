"""What submitters publish: what is written is read, and a lying site is refused in one line."""

from __future__ import annotations

import json
from typing import Any, Callable

import pytest

from templates.common.errors import WireError
from templates.common.message_fields import LONGEST_TEXT
from templates.job.records import RUNNING, TERMINATED, WAITING, ContainerState, End
from templates.job.status import (
    ENDED,
    STARTED,
    ContainerStatus,
    JobStatus,
    Version,
)
from templates.nats import codec
from templates.protocol import publications
from templates.protocol.publications import Resources, StatusUpdate, dump_status
from templates.site.build_config import BuildConfig, Images
from templates.site.schema import to_json
from tests.support.mutations import mutants

UID = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
NAME = f"hello-{UID}"
END = End(137, 9, "OOMKilled", "too much\nof it", 5, 6)
STATUS = JobStatus(
    job=NAME,
    uid=UID,
    namespace="team-a",
    pod="hello",
    version=Version(1_700_000_000_000, 2, 17),
    phase=STARTED,
    native="12345",
    node="n1",
    reason="Priority",
    message="é",
    started_ms=5,
    finished_ms=0,
    exit_code=0,
    deleting=True,
    containers=(
        ContainerStatus("init", "busybox", ContainerState("setup", TERMINATED, end=END)),
        ContainerStatus("sidecar", "x", ContainerState("side", WAITING, "PullBackOff", "soon")),
        ContainerStatus(
            "main",
            "r.example/x",
            ContainerState("main", RUNNING, "", "", 5, True, True, 2, None, END),
        ),
    ),
    origin="5b1c",
)
ENDED_ONE = STATUS._replace(
    phase=ENDED,
    version=Version(),
    native="",
    exit_code=-1,
    finished_ms=6,
    deleting=False,
    origin="",
    containers=(
        ContainerStatus("main", "x", ContainerState("m", TERMINATED, end=End(0, 0, "", "", 0, 0))),
    ),
)
HEADER = StatusUpdate("p", "a1b2", 7, 2, (), ("gone-1",), "next")


def published(*states: JobStatus) -> dict[str, Any]:
    raw = publications.dump_status_update(
        HEADER, [publications.dump_status(state) for state in states]
    )
    return codec.decode(raw)


def status_message() -> dict[str, Any]:
    message: dict[str, Any] = json.loads(publications.dump_status(STATUS))
    return message


def read_status(raw: dict[str, Any]) -> JobStatus:
    """The one status of a publication, as the plugin reads it."""
    message = publications.dump_status_update(HEADER, [json.dumps(raw).encode()])
    (status,) = publications.read_status_update(json.loads(message), "p").states
    return status


def complaint(read: Callable[[dict[str, Any]], object], message: dict[str, Any]) -> str:
    with pytest.raises(WireError) as caught:
        read(json.loads(json.dumps(message)))
    line = str(caught.value)
    assert line.isprintable()
    return line


# --- what is written is read ----------------------------------------------------------------------


@pytest.mark.parametrize("status", [STATUS, ENDED_ONE], ids=["started", "ended"])
def test_a_status(status: JobStatus) -> None:
    assert read_status(json.loads(publications.dump_status(status))) == status


def test_what_is_empty_is_not_said() -> None:
    dumped = json.loads(publications.dump_status(ENDED_ONE))
    assert "native" not in dumped
    assert dumped["containers"][0]["end"] == {}


@pytest.mark.parametrize("states", [(), (STATUS,), (STATUS, ENDED_ONE)])
def test_statuses(states: tuple[JobStatus, ...]) -> None:
    read = publications.read_status_update(published(*states), "p")
    assert read == HEADER._replace(states=states)


def test_resources() -> None:
    offer = Resources("p", {"cpu": "64", "memory": "1Ti"}, ("a=b",), ("c=d:NoSchedule",), True, 10)
    message = json.loads(json.dumps(publications.write_resources(offer)))
    assert publications.read_resources(message, "p") == offer


def test_resources_of_an_older_submitter() -> None:
    read = publications.read_resources({"quotas": {"cpu": 64, "memory": 1.5}}, "p")
    assert read == Resources("p", {"cpu": "64", "memory": "1.5"})


@pytest.mark.parametrize(
    "name",
    [
        "",
        "kubernetes.io/",
        "/gpu",
        "not a name!\n",
        "a b",
        "\x1b[2J",
        "x" * 5000,
        "A/b",
        "-",
        "ä",
        f"{'x' * 60}.example/gpu",
    ],
)
def test_a_resource_that_no_node_could_have_is_left_out_in_words(name: str) -> None:
    read = publications.read_resources({"quotas": {"cpu": "1", name: "2"}}, "p")
    assert read.quotas == {"cpu": "1"}
    assert read.left_out.startswith("left out: ")
    assert read.left_out.endswith(" (no names of resources, of at most 63 characters)")
    assert read.left_out.isprintable()
    assert len(read.left_out) < 200


def test_a_pool_offers_so_many_resources_and_no_more() -> None:
    quotas = {f"x.example/r{number}": "1" for number in range(150_000)}
    read = publications.read_resources({"quotas": {"cpu": "1", **quotas}}, "p")
    assert len(read.quotas) == publications.MOST_RESOURCES
    assert "cpu" in read.quotas
    assert read.left_out.endswith("149932 more (a pool may offer 64 resources)")
    assert len(read.left_out) < 500


@pytest.mark.parametrize("amount", ["1e30", "9" * 64, "1" + "0" * 59 + "E", 10**60])
def test_no_amount_is_beyond_what_kubernetes_counts(amount: object) -> None:
    read = publications.read_resources({"quotas": {"cpu": amount, "memory": amount}}, "p")
    assert read.quotas == {"cpu": str(2**53), "memory": str(2**53)}


@pytest.mark.parametrize("key", ["labels", "taints"])
def test_labels_and_taints_are_few(key: str) -> None:
    assert f"resources.{key}: must be at most 64" in complaint(
        lambda m: publications.read_resources(m, "p"), {key: ["a=b"] * 65}
    )


def test_what_was_left_out_is_said_by_the_reader_alone() -> None:
    assert publications.read_resources({"left_out": "x" * 5000}, "p").left_out == ""
    assert "left_out" not in publications.write_resources(Resources("p", {}))


@pytest.mark.parametrize(
    "place",
    [
        ("native",), ("node",), ("reason",), ("message",), ("origin",),
        ("containers", 0, "image"), ("containers", 0, "reason"), ("containers", 0, "message"),
        ("containers", 0, "end", "reason"), ("containers", 0, "end", "message"),
        ("containers", 0, "last_end", "reason"), ("containers", 0, "last_end", "message"),
    ],
    ids=str,
)  # fmt: skip
def test_a_long_text_of_a_status_is_cut(place: tuple[Any, ...]) -> None:
    def with_text(length: int) -> str:
        raw = json.loads(dump_status(ENDED_ONE))
        raw["containers"][0].setdefault("last_end", {})
        holder = raw
        for key in place[:-1]:
            holder = holder[key]
        holder[place[-1]] = "x" * length
        message = {**published(), "states": [raw]}
        read = publications.read_status_update(message, "p")
        (written,) = map(json.loads, map(dump_status, read.states))
        for key in place:
            written = written[key]
        return str(written)

    assert with_text(LONGEST_TEXT) == "x" * LONGEST_TEXT
    assert with_text(500_000) == "x" * LONGEST_TEXT


def test_a_build_configuration() -> None:
    build = BuildConfig(images=Images(cache="/cache"))
    message = json.loads(json.dumps(publications.write_config("p", build)))
    read = publications.read_config(message, "p")
    assert (read.pool, read.build) == ("p", build)
    assert read.digest == message["digest"]


def collections_of(raw: dict[str, Any], path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Where a build configuration has a list, or a mapping of names that a site chooses."""
    found = []
    for key, value in raw.items():
        is_section = isinstance(value, dict) and value
        if isinstance(value, list) or value == {} or (*path, key) == ("environment", "set"):
            found.append((*path, key))
        elif is_section:
            found += collections_of(value, (*path, key))
    return found


@pytest.mark.parametrize("place", collections_of(to_json(BuildConfig())), ids=".".join)
@pytest.mark.parametrize("entries", [[{"path": "/a"}], {"a": {"path": "/a"}}], ids=["list", "map"])
def test_no_part_of_a_build_configuration_has_entries_without_end(
    place: tuple[str, ...], entries: Any
) -> None:
    """None of so many is looked at."""
    count = 50_000
    many = entries * count if isinstance(entries, list) else dict.fromkeys(map(str, range(count)))
    build: Any = many
    for key in reversed(place):
        build = {key: build}
    said = complaint(
        lambda m: publications.read_config(m, "p"), {"v": 1, "digest": "0a", "build": build}
    )
    assert "must have at most 2000 entries, not 50000" in said or "must be a" in said


@pytest.mark.parametrize(
    ("build", "most"),
    [
        ({"script": {"header": "x" * 500_000}}, 256 * 1024),
        ({"volumes": {"scratch": "/" * 500_000}}, 64 * 1024),
        ({"environment": {"set": {"A": "x" * 500_000}}}, 64 * 1024),
        ({"environment": {"set": {"A" * 500_000: "x"}}}, 64 * 1024),
        ({"rules": {"annotations": ["*" * 500_000]}}, 64 * 1024),
        ({"defaults": {"cpu": "1" * 500_000}}, 64 * 1024),
    ],
)
def test_no_text_of_a_build_configuration_is_endless(build: dict[str, Any], most: int) -> None:
    said = complaint(
        lambda m: publications.read_config(m, "p"), {"v": 1, "digest": "0a", "build": build}
    )
    assert f"must have at most {most} characters, not 500000" in said


def test_the_digest_is_that_of_the_content() -> None:
    one, same = (publications.write_config(pool, BuildConfig())["digest"] for pool in ("p", "q"))
    other = publications.write_config("p", BuildConfig(images=Images(cache="/x")))["digest"]
    assert one == same != other


# --- what cannot be -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"job": "x"}, "job name"),
        ({"job": None}, "job name"),
        ({"phase": "running"}, "status.phase: must be one of accepted, queued, started, ended"),
        ({"phase": None}, "status.phase"),
        ({"containers": []}, "status.containers: must not be without a main container"),
        ({"containers": None}, "status.containers: must not be without a main container"),
        ({"containers": ["x"]}, "status.containers[0]: must be an object"),
        ({"namespace": 5}, "status.namespace"),
        ({"version": None}, "status.version: must be three whole numbers"),
        ({"version": [1, 2]}, "status.version: must be three whole numbers"),
        ({"version": [1, 2, True]}, "status.version: must be three whole numbers"),
        ({"version": [1, 2, 3.0]}, "status.version: must be three whole numbers"),
        ({"version": [-1, 2, 3]}, "status.version: must be three whole numbers"),
        ({"version": [10**30, 2, 3]}, "status.version: must be three whole numbers"),
        ({"native": {}}, "status.native"),
        ({"node": []}, "status.node"),
        ({"namespace": ".."}, "status.namespace: must be the name of a namespace"),
        ({"namespace": "a/b"}, "status.namespace"),
        ({"pod": ".."}, "status.pod: must be the name of a pod"),
        ({"pod": "x" * 254}, "status.pod"),
        ({"started_ms": -1}, "status.started_ms"),
        ({"finished_ms": "x"}, "status.finished_ms"),
        ({"exit_code": 2**31}, "status.exit_code"),
        ({"exit_code": "0"}, "status.exit_code"),
        ({"deleting": 1}, "status.deleting"),
        ({"origin": []}, "status.origin"),
    ],
)
def test_a_status_that_cannot_be(fields: dict[str, Any], words: str) -> None:
    assert words in complaint(read_status, {**status_message(), **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "A"},
        {"name": None},
        {"kind": "other"},
        {"state": "sleeping"},
        {"state": "running", "end": {}},
        {"state": "terminated", "end": None},
        {"state": "terminated"},
        {"image": 5},
        {"reason": []},
        {"message": {}},
        {"started_ms": -1},
        {"begun": "x"},
        {"ready": 2},
        {"restarts": -1},
        {"last_end": []},
        {"last_end": {"exit_code": None}},
        {"last_end": {"signal": -9}},
        {"last_end": {"reason": 1}},
        {"last_end": {"finished_ms": 1.5}},
    ],
)
def test_a_container_that_cannot_be(fields: dict[str, Any]) -> None:
    message = status_message()
    message["containers"][2].update(fields)
    assert "status.containers" in complaint(read_status, message)


def test_no_container_is_there_twice() -> None:
    message = status_message()
    message["containers"].append(message["containers"][0])
    assert "has a name twice" in complaint(read_status, message)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"pool": "q"}, "statuses.pool: is not p, which the subject names"),
        ({"pool": None}, "statuses.pool: is not p"),
        ({"instance": ""}, "statuses.instance"),
        ({"instance": "a.b"}, "statuses.instance"),
        ({"number": -1}, "statuses.number"),
        ({"jobs": "2"}, "statuses.jobs"),
        ({"states": {}}, "statuses.states"),
        ({"states": [5]}, "statuses.states[0]"),
        ({"gone": [5]}, "statuses.gone[0]"),
        ({"cursor": 5}, "statuses.cursor"),
    ],
)
def test_statuses_that_cannot_be(fields: dict[str, Any], words: str) -> None:
    message = {**published(STATUS), **fields}
    assert words in complaint(lambda m: publications.read_status_update(m, "p"), message)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"quotas": {"cpu": "-1"}}, "resources.quotas['cpu']: must not be negative"),
        ({"quotas": {"cpu": "many"}}, "not a quantity"),
        ({"quotas": {"cpu": True}}, "resources.quotas['cpu']"),
        ({"quotas": {"cpu": 1e999}}, "not a quantity"),
        ({"quotas": []}, "resources.quotas"),
        ({"labels": "x"}, "resources.labels"),
        ({"taints": [1]}, "resources.taints"),
        ({"draining": "no"}, "resources.draining"),
        ({"interval_s": "10"}, "resources.interval_s: must be a whole number of at least 0"),
        ({"interval_s": -1}, "resources.interval_s: must be a whole number of at least 0"),
        ({"interval_s": 0.5}, "resources.interval_s: must be a whole number of at least 0"),
    ],
)
def test_resources_that_cannot_be(message: dict[str, Any], words: str) -> None:
    assert words in complaint(lambda m: publications.read_resources(m, "p"), message)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"digest": "a b"}, "config.digest"),
        ({"digest": None}, "config.digest"),
        ({"build": []}, "config.build"),
        ({"build": {"images": {"cache": "x"}}}, "config of p: BuildConfig: images.cache: must be"),
        ({"build": {"runtime": {"name": "docker"}}}, "runtime.name: must be one of"),
    ],
)
def test_a_build_configuration_that_cannot_be(fields: dict[str, Any], words: str) -> None:
    message = {**publications.write_config("p", BuildConfig()), **fields}
    assert words in complaint(lambda m: publications.read_config(m, "p"), message)


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda m: publications.read_status_update(m, "p"), published(STATUS, ENDED_ONE)),
        (
            lambda m: publications.read_resources(m, "p"),
            publications.write_resources(
                Resources("p", {"cpu": "1"}, ("a=b",), ("c=d:x",), True, 9)
            ),
        ),
        (lambda m: publications.read_config(m, "p"), publications.write_config("p", BuildConfig())),
    ],
    ids=["statuses", "resources", "config"],
)
def test_spoilt_publications_are_read_or_refused_in_one_line(
    read: Callable[[dict[str, Any]], object], message: dict[str, Any], mutations: int
) -> None:
    for spoilt in mutants(message, mutations):
        try:
            read(spoilt)
        except WireError as error:
            assert str(error).isprintable()
