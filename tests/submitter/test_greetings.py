"""Who wants to hear of a pool more often than it publishes: told to its admin, once."""

from __future__ import annotations

import json
import logging

import pytest

from submitter.greetings import Greetings
from templates import messages, wire
from templates.messages import Hello
from tests.mutations import mutants

TOO_RARE = (
    "pool=slurm-a: kueue-nats counts this pool as lost unless it hears of it every 10 s; "
    "pools[].timing.resources_s is 60: lower it"
)


@pytest.fixture
def greetings() -> Greetings:
    return Greetings("slurm-a", 60)


def hello(interval_s: int = 0, sender: str = "kueue-nats") -> bytes:
    return wire.encode(messages.hello(Hello(sender, interval_s)))


def test_a_pool_that_publishes_too_rarely_is_told_once_for_each_value(
    greetings: Greetings, caplog: pytest.LogCaptureFixture
) -> None:
    for interval in (10, 10, 60, 61, 0, 10):
        greetings.hear(hello(interval))
    assert caplog.messages == [TOO_RARE]
    greetings.hear(hello(20))
    greetings.hear(hello(10))
    assert caplog.messages == [TOO_RARE, TOO_RARE.replace("10 s", "20 s")]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_who_does_not_say_its_name_is_somebody(
    greetings: Greetings, caplog: pytest.LogCaptureFixture
) -> None:
    greetings.hear(hello(10, ""))
    assert caplog.messages == [TOO_RARE.replace("kueue-nats", "a program in the cluster")]


def test_what_cannot_be_read_is_said_once(
    greetings: Greetings, caplog: pytest.LogCaptureFixture
) -> None:
    for raw in (b"", b"{}", b"\xff", b'{"v":1,"interval_s":"10"}', b'{"v":1,"interval_s":-1}'):
        greetings.hear(raw)
    (line,) = caplog.messages
    assert line.startswith("pool=slurm-a: a hello that cannot be read: message: ")
    greetings.hear(hello(10))
    assert caplog.messages[1:] == [TOO_RARE]


def test_whatever_comes_is_a_few_lines(
    greetings: Greetings, caplog: pytest.LogCaptureFixture
) -> None:
    good = json.loads(hello(10))
    for message in mutants(good, 2000):
        greetings.hear(json.dumps(message).encode())
    assert len(caplog.messages) < 60
    assert all(line.isprintable() and len(line) < 600 for line in caplog.messages)


@pytest.mark.parametrize("raw", [b'{"v":1}', b'{"v":1,"later":{"a":[1]}}'])
def test_an_older_or_newer_hello_says_nothing(
    greetings: Greetings, caplog: pytest.LogCaptureFixture, raw: bytes
) -> None:
    greetings.hear(raw)
    assert caplog.messages == []
