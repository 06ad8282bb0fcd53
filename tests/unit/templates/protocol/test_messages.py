"""Requests and answers: what is written is read, and hostile ones are one line each."""

from __future__ import annotations

from typing import Any, Callable

import pytest

from templates.common.errors import WireError
from templates.job.model import File, Job
from templates.nats import codec
from templates.protocol import messages
from templates.protocol.messages import Delete, LogEnd, LogRequest, Query, Refusal
from tests.support.mutations import mutants

UID = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
NAME = f"hello-{UID}"
FULL = Job(
    name=NAME,
    uid=UID,
    namespace="team-a",
    pod="hello",
    runtime="apptainer",
    script="#!/bin/bash\necho é\n",
    files=(
        File("env/main", b"A=b\n", 0o600, True),
        File("bin/x", b"\x00\xff\xfe", 0o755, False),
        File("empty", b"", 0o644, False),
    ),
    cpu_milli=1500,
    memory_bytes=2**40,
    gpus={"nvidia.com/gpu": 2},
    wall_time_s=3600,
    other_resources={"example.org/fpga": "1"},
    annotations={"flags": "-p gpu", "condor/x": "y"},
    containers=(("setup", "init", "busybox"), ("main", "main", "r.example/x@sha256:00")),
    grace_period_s=30,
    host_paths=("/data",),
    privileged=True,
    origin="5b1c",
    images=("docker://docker.io/library/busybox:latest", "docker://r.example/x@sha256:00"),
    used_annotations=("pre-exec", "singularity-options"),
    options=("--env", "C=d e"),
)
LEAST = FULL._replace(
    files=(),
    gpus={},
    wall_time_s=None,
    other_resources={},
    annotations={},
    privileged=False,
    origin="",
    images=(),
    used_annotations=(),
    options=(),
)
LOG = LogRequest(NAME, "main", "7:1", 65536, 10, True, True, True, 100, 1_700_000_000_000)


def over_the_wire(message: Any) -> dict[str, Any]:
    return codec.decode(codec.encode(message))


def complaint(read: Callable[[dict[str, Any]], object], message: dict[str, Any]) -> str:
    with pytest.raises(WireError) as caught:
        read(over_the_wire(message))
    line = str(caught.value)
    assert line.isprintable()
    return line


# --- what is written is read ----------------------------------------------------------------------


@pytest.mark.parametrize("job", [FULL, LEAST], ids=["full", "least"])
def test_a_job(job: Job) -> None:
    assert messages.read_create(over_the_wire(messages.write_create([job]))) == [job]


def test_a_job_of_an_older_plugin_that_declares_less() -> None:
    message = messages.write_create([LEAST])
    for field in ("images", "used_annotations", "options"):
        del message["jobs"][0][field]
    assert messages.read_create(over_the_wire(message)) == [LEAST]


def test_many_jobs_in_one_message() -> None:
    jobs = [FULL, LEAST, FULL]
    assert messages.read_create(over_the_wire(messages.write_create(jobs))) == jobs


def test_a_wrong_job_does_not_spoil_those_beside_it() -> None:
    message = messages.write_create([LEAST, FULL, LEAST])
    message["jobs"][1]["pod"] = 5
    first, wrong, last = messages.read_create(over_the_wire(message))
    assert (first, last) == (LEAST, LEAST)
    assert str(wrong) == "create.pod: must be a string, not a number"


def test_the_outcomes_of_many_jobs() -> None:
    full = Refusal("unavailable", "the disk is full", True)
    answer = over_the_wire(messages.write_outcomes(["journaled", full, "known"]))
    assert messages.read_outcomes(answer, 3) == [None, full, None]
    refused = over_the_wire(messages.write_refusal(full))
    assert messages.read_outcomes(refused, 2) == [full, full]


@pytest.mark.parametrize("outcomes", [[], [{}], [{}] * 3, ["journaled"] * 2, {}, None])
def test_outcomes_that_cannot_be(outcomes: Any) -> None:
    assert "answer.outcomes" in complaint(read_two_outcomes, {"outcomes": outcomes})


def read_two_outcomes(message: dict[str, Any]) -> object:
    return messages.read_outcomes(message, 2)


def test_the_script_and_the_files_of_a_job_stand_as_they_are_behind_the_rest() -> None:
    head, _, attached = codec.encode(messages.write_create([FULL])).partition(b"\n")
    assert attached == FULL.script.encode() + b"".join(file.content for file in FULL.files)
    assert b"A=b" not in head


@pytest.mark.parametrize("grace", [None, 0, 30])
def test_a_delete(grace: int) -> None:
    message = Delete(NAME, grace)
    assert messages.read_delete(over_the_wire(messages.write_delete(message))) == message


@pytest.mark.parametrize(
    "message", [Query(None), Query(()), Query((NAME,)), Query(None, "next"), Query((NAME,), "x")]
)
def test_a_query(message: Query) -> None:
    assert messages.read_query(over_the_wire(messages.write_query(message))) == message


def test_a_refusal() -> None:
    message = Refusal(messages.FORBIDDEN, "policy.images ...", False)
    assert messages.read_refusal(over_the_wire(messages.write_refusal(message))) == message
    assert messages.read_refusal({"state": "journaled"}) is None


def test_a_refusal_stays_on_one_line() -> None:
    hostile = Refusal("x", "a\nb\x1b[2J" + "c" * 1000, True)
    read = messages.read_refusal(over_the_wire(messages.write_refusal(hostile)))
    assert read is not None
    assert read.message.isprintable()
    assert len(read.message) <= 400


@pytest.mark.parametrize("message", [LOG, LOG._replace(cursor="", follow=False, tail=-1)])
def test_a_log_request(message: LogRequest) -> None:
    assert messages.read_log_request(over_the_wire(messages.write_log_request(message))) == message


def test_a_log_request_without_options_asks_for_all() -> None:
    read = messages.read_log_request({"job": NAME, "container": "main", "window_bytes": 1})
    assert read == LogRequest(NAME, "main", "", 1, 0, False, False, False, -1, 0)


def test_the_end_of_a_log() -> None:
    message = LogEnd("9:2", 5, True)
    assert messages.read_log_end(over_the_wire(messages.write_log_end(message))) == message


def test_fields_of_a_newer_version_are_ignored() -> None:
    message = {**changed(colour="green"), "colour": "green"}
    assert messages.read_create(over_the_wire(message)) == [FULL]


# --- what cannot be -------------------------------------------------------------------------------


def changed(**fields: Any) -> dict[str, Any]:
    message = messages.write_create([FULL])
    message["jobs"][0].update(fields)
    return message


def read_one(message: dict[str, Any]) -> Job:
    """The job in a create message; raises what is wrong with it."""
    job, *_ = messages.read_create(message)
    if isinstance(job, WireError):
        raise job
    return job


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": None}, "job name: does not end in a uid"),
        ({"name": 5}, "create.name: must be a string, not a number"),
        ({"name": f"../{NAME}"}, "job name: does not begin"),
        ({"name": f"x-{UID[:-1]}1"}, "create.uid: is not that of the job's name"),
        ({"uid": 7}, "create.uid: must be a string"),
        ({"namespace": "a.b"}, "create.namespace: must be 1 to 63"),
        ({"namespace": "a/../b"}, "create.namespace: must be 1 to 63"),
        ({"pod": []}, "create.pod: must be a string, not a list"),
        ({"files": [[]] * 3}, "create.files: must be lists of path"),
        ({"files": ["x"] * 3}, "create.files: must be lists of path"),
        ({"files": [["a", True, True]] * 3}, "create.files: must be lists of path"),
        ({"files": [["a", 0o1000, True]] * 3}, "create.files: a mode must be from 0 to 0777"),
        ({"files": [["a", -1, True]] * 3}, "create.files: a mode must be from 0 to 0777"),
        ({"cpu_milli": -1}, "create.cpu_milli: must be a whole number of at least 0"),
        ({"cpu_milli": 2**63}, "create.cpu_milli: must be a whole number"),
        ({"cpu_milli": True}, "create.cpu_milli: must be a whole number"),
        ({"memory_bytes": 1.5}, "create.memory_bytes: must be a whole number"),
        ({"wall_time_s": 0}, "create.wall_time_s: must be a whole number of at least 1"),
        ({"gpus": {"a": -1}}, "create.gpus.a: must be a whole number"),
        ({"gpus": []}, "create.gpus: must be an object"),
        ({"other_resources": {"a": 1}}, "create.other_resources['a']: must be a string"),
        ({"annotations": {"a": None}}, "create.annotations['a']: must be a string"),
        ({"containers": []}, "create.containers: must not be without a main container"),
        ({"containers": None}, "create.containers: must not be without a main container"),
        ({"containers": [["a", "init", "x"]]}, "must not be without a main container"),
        ({"containers": [["a", "main"]]}, "create.containers: must be lists of name"),
        ({"containers": [{}]}, "create.containers: must be lists of name"),
        ({"containers": [["a", "other", "x"]]}, "create.containers: has a name or kind"),
        ({"containers": [["../a", "main", "x"]]}, "create.containers: has a name or kind"),
        ({"containers": [["a", "main", "x"]] * 2}, "create.containers: has a name twice"),
        ({"grace_period_s": "30"}, "create.grace_period_s: must be a whole number"),
        ({"host_paths": [1]}, "create.host_paths[0]: must be a string"),
        ({"privileged": 1}, "create.privileged: must be a boolean"),
        ({"origin": 1}, "create.origin: must be a string"),
    ],
)
def test_a_job_that_cannot_be(fields: dict[str, Any], words: str) -> None:
    assert words in complaint(read_one, changed(**fields))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"attachments": []}, "create.attachments: are not those of the jobs"),
        ({"attachments": [b"x"] * 4}, "create.attachments: are not those of the jobs"),
        ({"attachments": [b"x"] * 6}, "create.attachments: are not those of the jobs"),
        ({"attachments": [b""] * 5}, "create.script: must not be empty"),
        ({"attachments": [b"\xff"] * 5}, "create.script: is not UTF-8 text"),
        ({"jobs": []}, "create.attachments: are not those of the jobs"),
        ({"jobs": {}}, "create.jobs: must be a list"),
        ({"jobs": [1]}, "create.jobs: must be objects"),
        ({"jobs": [{"files": {}}]}, "create.jobs: must be objects with a list of files"),
    ],
)
def test_a_create_that_cannot_be(fields: dict[str, Any], words: str) -> None:
    assert words in complaint(read_one, {**messages.write_create([FULL]), **fields})


@pytest.mark.parametrize(
    "path",
    ["", "/etc/passwd", "../x", "a/../x", "a//b", "./a", "a/.", "a/", "a\0b", "..", ".", "/"],
)
def test_no_file_leaves_the_directory_of_its_job(path: str) -> None:
    words = complaint(read_one, changed(files=[[path, 0, False]] * 3))
    assert "a path must be relative, without dots" in words


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({}, "job name"),
        ({"name": None}, "job name"),
        ({"name": ["x"]}, "delete.name: must be a string"),
        ({"name": "x/../y"}, "job name"),
        ({"name": NAME, "grace_period_s": -1}, "delete.grace_period_s"),
        ({"name": NAME, "grace_period_s": "x"}, "delete.grace_period_s"),
    ],
)
def test_a_delete_that_cannot_be(message: dict[str, Any], words: str) -> None:
    assert words in complaint(messages.read_delete, message)


@pytest.mark.parametrize(
    "message", [{"jobs": "x"}, {"jobs": [1]}, {"jobs": {}}, {"cursor": 1}, {"jobs": [None]}]
)
def test_a_query_that_cannot_be(message: dict[str, Any]) -> None:
    assert "query." in complaint(messages.read_query, message)


@pytest.mark.parametrize(
    "refused", [[], "no", {"code": 1}, {"message": []}, {"retry": "yes"}, {"retry": 1}]
)
def test_a_refusal_that_cannot_be(refused: Any) -> None:
    assert "answer.refused" in complaint(messages.read_refusal, {"refused": refused})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"job": "x"}, "job name"),
        ({"container": "../x"}, "logs.container"),
        ({"container": None}, "logs.container"),
        ({"cursor": 5}, "logs.cursor"),
        ({"window_bytes": 0}, "logs.window_bytes"),
        ({"wait_s": -1}, "logs.wait_s"),
        ({"tail": -2}, "logs.tail"),
        ({"tail": None}, "logs.tail"),
        ({"follow": "yes"}, "logs.follow"),
        ({"since_ms": 1.5}, "logs.since_ms"),
    ],
)
def test_a_log_request_that_cannot_be(fields: dict[str, Any], words: str) -> None:
    message = {**messages.write_log_request(LOG), **fields}
    assert words in complaint(messages.read_log_request, message)


@pytest.mark.parametrize("fields", [{"cursor": 1}, {"sent": -1}, {"over": 0}])
def test_an_end_of_a_log_that_cannot_be(fields: dict[str, Any]) -> None:
    message = {**messages.write_log_end(LogEnd("x", 1, True)), **fields}
    assert "log." in complaint(messages.read_log_end, message)


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (read_one, messages.write_create([FULL])),
        (messages.read_delete, messages.write_delete(Delete(NAME, 5))),
        (messages.read_query, messages.write_query(Query((NAME,), "x"))),
        (messages.read_log_request, messages.write_log_request(LOG)),
        (messages.read_log_end, messages.write_log_end(LogEnd("x", 1, True))),
        (messages.read_refusal, messages.write_refusal(Refusal("a", "b", True))),
    ],
    ids=["create", "delete", "query", "logs", "log end", "refusal"],
)
def test_spoilt_messages_are_read_or_refused_in_one_line(
    read: Callable[[dict[str, Any]], object], message: dict[str, Any], mutations: int
) -> None:
    attached = message.get("attachments")
    rest = {key: value for key, value in message.items() if key != "attachments"}
    for spoilt in mutants(rest, mutations):
        try:
            read(spoilt if attached is None else {"attachments": attached, **spoilt})
        except WireError as error:
            assert str(error).isprintable()
