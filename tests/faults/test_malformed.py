"""Noise on every endpoint and every subject: answered or ignored, and nothing breaks."""

from __future__ import annotations

import asyncio
import http.client
import json
import random
import uuid
from pathlib import Path
from typing import Any

import pytest

from templates.nats import subjects
from templates.nats.connection import Link
from templates.nats.options import LinkSettings
from templates.nats.requests import LinkError
from tests.support.system import POOL, System, job_of, running

pytestmark = pytest.mark.faults
MESSAGES = 90_000
REQUESTS = 10_000
KINDS = (
    "create",
    "delete",
    "logs",
    "query",
    "answerparts",
    "requestparts",
    "config",
    "resources",
    "status",
    "hello",
)
ENDPOINTS = (("POST", "/create"), ("POST", "/delete"), ("GET", "/status"), ("GET", "/getLogs"))
ODD: tuple[Any, ...] = (
    None, True, -1, 2**70, 1.5, "", "\0", "\ud800", "a" * 5000, "../../etc", [], [[]], {}, {"v": 1},
    "*", ">", ".", "x.y", {"parts": {}}, {"parts": {"id": "x", "pieces": 10**9, "size": 10**9}},
)  # fmt: skip


def mutated(chance: random.Random, value: Any, depth: int = 0) -> Any:
    """The value with something odd somewhere in it."""
    if chance.random() < 0.15 or depth > 6:
        return chance.choice(ODD)
    if isinstance(value, dict) and value:
        key = chance.choice(list(value))
        if chance.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: mutated(chance, value[key], depth + 1)}
    if isinstance(value, list) and value:
        place = chance.randrange(len(value))
        return [*value[:place], mutated(chance, value[place], depth + 1), *value[place + 1 :]]
    return chance.choice(ODD)


def noise(chance: random.Random, sample: Any) -> bytes:
    kind = chance.random()
    if kind < 0.1:
        return chance.randbytes(chance.randrange(200))
    raw = json.dumps(mutated(chance, sample)).encode()
    if kind < 0.2:
        return raw[: chance.randrange(len(raw) + 1)]
    return raw


def samples() -> dict[str, Any]:
    """One good message of each kind."""
    recording = Path(__file__).parents[1] / "data/recordings/0.6.2/create-everything.json"
    create = json.loads(recording.read_text())["body"]
    logs = {"Namespace": "n", "PodUID": create["pod"]["metadata"]["uid"], "ContainerName": "main"}
    return {
        "/create": create,
        "/delete": create["pod"],
        "/status": [create["pod"]],
        "/getLogs": {**logs, "PodName": "p", "Opts": {"Tail": 1, "Bytes": 1, "Follow": False}},
    }


def test_noise_on_every_endpoint(tmp_path: Path) -> None:
    chance = random.Random()
    good = samples()
    with running(tmp_path, plugin={"create_timeout_s": 1}) as system:
        connection = http.client.HTTPConnection("127.0.0.1", system.port, timeout=60)
        for _ in range(REQUESTS):
            method, path = chance.choice(ENDPOINTS)
            connection.request(method, path, noise(chance, good[path]))
            response = connection.getresponse()
            text = response.read()
            assert response.status < 500 or response.status == 503, (path, response.status, text)
            if response.status >= 400:
                assert text.strip()
                assert b"\n" not in text.strip()
                assert b"Traceback" not in text
        connection.close()
        _still_works(system)


def test_noise_on_every_subject(tmp_path: Path) -> None:
    with running(tmp_path) as system:
        pod = system.run("sleep 600")
        system.until(lambda: system.status(pod), "it is known")
        asyncio.run(_shout(system, pod))
        status = system.status(pod)
        assert status is not None
        assert "terminated" not in status["containers"][0]["state"]
        system.plugin.delete(pod)
        _still_works(system)


async def _shout(system: System, pod: dict[str, Any]) -> None:
    link = Link(LinkSettings((system.nats.url,)), subjects.DEFAULT_ROOT)
    await link.start()
    assert await link.connected(10)
    chance = random.Random()
    status = {
        "v": 1, "pool": POOL, "instance": "x1", "number": 1, "jobs": 1, "gone": [], "cursor": "",
        "states": [{"job": job_of(pod), "version": [1, 2, 3], "phase": "ended", "containers": []}],
    }  # fmt: skip
    other = f"other-{uuid.uuid4()}"  # a good delete of the pod itself would delete it
    good = {"v": 1, "name": other, "jobs": None, "quotas": {"cpu": "1"}, "build": {}}
    for number in range(MESSAGES):
        kind = chance.choice(KINDS)
        address = subjects.subject("interlink", kind, POOL, chance.choice((job_of(pod), other)))
        await link.publish_raw(address, noise(chance, chance.choice((status, good))))
        if number % 1000 == 0:
            await _ask(link, address, chance, good)
    await link.stop()


async def _ask(link: Link, address: str, chance: random.Random, good: dict[str, Any]) -> None:
    try:
        await link.request_raw(address, noise(chance, good), 0.5)
    except LinkError:
        return


def _still_works(system: System) -> None:
    system.plugin.close()  # a connection that was idle all the while may be closed
    for process in system.processes.values():
        assert process.process is not None
        assert process.process.poll() is None, process.log()
        assert "Traceback" not in process.log()
    assert [end["exitCode"] for end in system.ended(system.run("exit 3"))] == [3]
