"""A pool on NATS: what it refuses, what it tells without being asked."""

from __future__ import annotations

import random
import uuid
from pathlib import Path
from typing import Any

import pytest

from templates.common.names import job_name
from templates.job.model import File
from templates.nats import codec, subjects
from templates.protocol import messages, publications
from tests.unit.submitter.conftest import Start
from tests.unit.submitter.rig import POOL, Centre, eventually, job_of


def ask_raw(centre: Centre, kind: str, item: str, payload: bytes) -> dict[str, Any]:
    where = subjects.subject("interlink", kind, POOL, item)
    return codec.decode(centre.do(centre.link.request_raw(where, payload, 20)))


def test_malformed_requests_get_a_clear_answer(start: Start, centre: Centre) -> None:
    submitter = start()
    good = codec.encode(messages.write_create([job_of()]))
    name = job_name("job", str(uuid.uuid4()))
    chance = random.Random(7)
    payloads = [b"", b"{}", b"[]", b"null", b"\xff", b"x\x9c", b'{"v": 2}', b'{"v": 1}']
    payloads += [b'{"v": 1, "parts": {"id": "x", "pieces": 1, "size": 1, "sha256": ""}}'] * 2
    for _ in range(100):
        torn = bytearray(good)
        for _ in range(chance.randrange(1, 20)):
            torn[chance.randrange(len(torn))] = chance.randrange(256)
        payloads.append(bytes(torn[: chance.randrange(len(torn))]))
    for payload in payloads:
        for kind in (subjects.CREATE, subjects.DELETE):
            answer = ask_raw(centre, kind, name, payload)
            refused = answer.get("refused") or answer["outcomes"][0]["refused"]
            assert not refused["retry"] or "parts" in payload.decode(errors="replace")
    assert ask_raw(centre, subjects.DELETE, name, good)["refused"]["code"] == "malformed"
    assert ask_raw(centre, subjects.QUERY, "", b"{}")["refused"]["code"] == "malformed"
    assert centre.query(everything=True).jobs == 0
    assert "Traceback" not in submitter.words()


def test_the_policy_is_asked(start: Start, centre: Centre) -> None:
    start(policy={"namespaces": ["science-*"]})
    refused = centre.create(job_of())["refused"]
    assert (refused["code"], refused["retry"]) == ("forbidden", False)
    assert "tests" in refused["message"]


def test_what_can_never_fit_is_refused_with_words(start: Start, centre: Centre) -> None:
    start(options={"cpu": "2"}, resources={"nvidia.com/gpu": "1"})
    for resources, words in (
        ({"requests": {"cpu": "3"}}, "asks for 3 cpus, and this machine offers 2 cpus"),
        ({"limits": {"nvidia.com/gpu": "2"}}, "asks for 2 nvidia.com/gpu"),
        ({"limits": {"amd.com/gpu": "1"}}, "offers 0 amd.com/gpu"),
    ):
        refused = centre.create(job_of(resources=resources))["refused"]
        assert refused["code"] == "forbidden"
        assert words in refused["message"]


def test_what_is_told_at_the_start_and_on_hello(start: Start, centre: Centre) -> None:
    start(options={"cpu": "2", "memory": "1Gi"}, labels={"zone": "x"}, taints=["a=b:NoSchedule"])

    def told(kind: str) -> list[dict[str, Any]]:
        return [message for of, message in centre.others if of == kind]

    eventually(lambda: told(subjects.CONFIG) and told(subjects.RESOURCES))
    offer = publications.read_resources(told(subjects.RESOURCES)[0], POOL)
    assert dict(offer.quotas) == {"cpu": "2", "memory": "1Gi", "pods": "110"}
    assert (offer.labels, offer.taints) == (("zone=x",), ("a=b:NoSchedule",))
    assert offer.interval_s == 2
    config = publications.read_config(told(subjects.CONFIG)[0], POOL)
    assert config.build.runtime.name == "host"
    before = len(told(subjects.CONFIG))
    centre.do(centre.link.publish("interlink.hello", {}))
    eventually(lambda: len(told(subjects.CONFIG)) == before + 1)


def test_a_hello_is_answered_whatever_it_holds(start: Start, centre: Centre) -> None:
    """An older operator says in it how often it wants to hear of the pool."""
    submitter = start(timing={"resources_s": 60})
    old = {"from": "kueue-nats", "interval_s": 10}
    raws = [b"", b"\xff", b'{"v": 2}', b'{"v": 1, "interval_s": []}', codec.encode(old)]

    def configs() -> int:
        return sum(kind == subjects.CONFIG for kind, _ in centre.others)

    eventually(configs)
    for raw in raws:
        before = configs()
        centre.do(centre.link.publish_raw("interlink.hello", raw))
        eventually(lambda before=before: configs() == before + 1)
    assert "WARNING" not in submitter.words()


def test_publications_are_numbered_and_heartbeats_repeat_the_number(
    start: Start, centre: Centre
) -> None:
    start()
    jobs = [job_of() for _ in range(3)]
    for job in jobs:
        centre.create(job)
    for job in jobs:
        centre.ended(job.name)
        centre.delete(job.name)
    for job in jobs:
        centre.until_gone(job.name)
    eventually(lambda: len(centre.gone) == 3)
    number = 0
    for told in centre.publications:
        assert told.number - number == bool(told.states or told.gone)
        number = told.number
    assert sorted(centre.gone) == sorted(job.name for job in jobs)
    eventually(lambda: centre.publications[-1].jobs == 0)


def test_pages_and_large_publications(start: Start, centre: Centre) -> None:
    """2,500 states are more than a message holds."""
    submitter = start(options={"pods": "1"})
    first = job_of("sleep 1000")
    centre.create(first)
    base = job_of()
    names = {first.name}

    async def create_all() -> None:
        for _ in range(25):
            uids = [str(uuid.uuid4()) for _ in range(100)]
            jobs = [base._replace(uid=uid, name=job_name("job", uid)) for uid in uids]
            names.update(job.name for job in jobs)
            answer = await centre.asking(subjects.CREATE, "", messages.write_create(jobs))
            assert answer["outcomes"] == [{"state": "journaled"}] * len(jobs)

    centre.do(create_all(), 120)
    page = centre.query(everything=True)
    assert {status.job for status in page.states} == names
    assert len(page.states) == len(names)
    some = sorted(names)[::2]
    absent = [job_name("absent", str(uuid.uuid4())) for _ in range(10)]
    page = centre.query(*some, *absent)
    assert [status.job for status in page.states] == some
    assert sorted(page.gone) == sorted(absent)
    eventually(lambda: set(centre.heard) == names)
    submitter.stop()
    submitter.until_ready(centre)
    assert centre.query(everything=True).jobs == len(names)


def test_a_create_larger_than_a_message(start: Start, centre: Centre) -> None:
    submitter = start()
    job = job_of("wc -c <$0/volumes/big")
    big = File("volumes/big/file", random.Random(1).randbytes(5_000_000), 0o600, False)
    job = job._replace(files=(*job.files, big))
    assert centre.create(job)["state"] == "journaled"
    written = submitter.directory / "jobs" / job.name / "volumes/big/file"
    centre.ended(job.name)
    assert written.read_bytes() == big.content


@pytest.mark.parametrize("how", ["shutdown", "signal"])
def test_it_ends_at_once_and_well(start: Start, centre: Centre, how: str) -> None:
    submitter = start()
    job = job_of("sleep 1000")
    centre.create(job)
    centre.until(job.name, lambda s: s.containers[0].state.state == "running")
    if how == "signal":
        assert submitter.stop() == 0
    else:
        where = subjects.subject("interlink", subjects.SHUTDOWN, POOL)
        # What a key-value store answers who has it answer here.
        centre.do(centre.link.publish_raw(where, b'{"stream":"KV_tokens-x","seq":1}'))
        eventually(lambda: f"{where}: refused a message" in submitter.words())
        assert centre.create(job)["state"] == "known"
        centre.do(centre.link.publish(where, {}))
        process = submitter.process
        assert process is not None
        assert process.wait(20) == 0
    submitter.process = None
    submitter.until_ready(centre)
    assert centre.status(job.name) is not None


def test_nothing_secret_is_logged_or_readable(start: Start, centre: Centre) -> None:
    submitter = start()
    secret = f"secret-{uuid.uuid4().hex}"
    job = job_of(f"test -n {secret} && sleep 3")
    centre.create(job)
    centre.until(job.name, lambda s: s.containers[0].state.state == "running")
    folder = submitter.directory

    def holders() -> list[Path]:
        found = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
        return [path for path in found if secret.encode() in path.read_bytes()]

    def only_its_own() -> bool:
        assert all(path.stat().st_mode & 0o077 == 0 for path in holders())
        return all("secret" in path.relative_to(folder).parts for path in holders())

    eventually(only_its_own, why="the record of its acceptance is overwritten")
    assert folder.stat().st_mode & 0o077 == 0
    centre.ended(job.name)
    assert secret not in submitter.words()
