"""Logs: as interLink asks for them, of any size, from sites that come and go."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plugin_server.nats import log_reader
from templates.job.records import TERMINATED, ContainerState, End
from templates.protocol import messages
from templates.protocol.messages import LogRequest, Refusal
from tests.support.nats_server import NatsServer
from tests.unit.plugin_server.conftest import Plugin, until
from tests.unit.plugin_server.pod_builders import (
    containers,
    create_request,
    job_of,
    log_request,
    pod,
    status,
)
from tests.unit.plugin_server.site import Site

MakePlugin = Callable[..., Plugin]


TAKEN = (
    "1 of 1 logs (server.log_readers) are being read, most by namespaces team-a 1; "
    "none is left: try it later"
)


class Reading:
    """A client that reads, or is gone."""

    def __init__(self, connected: bool = True) -> None:
        self._connected = connected

    def is_connected(self) -> bool:
        return self._connected

    def takes_more(self) -> bool:
        return self._connected


def read(plugin: Plugin, raw: dict[str, Any], **options: Any) -> bytes:
    answer = plugin.client.get("/getLogs", data=log_request(raw, **options))
    assert answer.status_code == 200, answer.text
    assert answer.content_type == "text/plain; charset=utf-8"
    content: bytes = answer.data
    return content


def running(plugin: Plugin, site: Site, log: bytes = b"") -> dict[str, Any]:
    raw = pod(pool=site.pool)
    site.say(status(raw))
    site.logs[job_of(raw), "main"] = log
    until(lambda: plugin.service.table.find(raw["metadata"]["uid"]))
    plugin.status(raw)
    return raw


def over(site: Site, raw: dict[str, Any]) -> None:
    """The job has ended."""
    end = ContainerState("", TERMINATED, end=End(0, 0, "", "", 0, 0))
    site.say(status(raw, "ended", containers=containers(raw, main=end)))


@pytest.mark.parametrize("size", [0, 1, 65536, log_reader.WINDOW, 3 * log_reader.WINDOW + 7])
def test_a_log_arrives_whole(plugin: Plugin, site: Site, size: int) -> None:
    log = bytes(number % 251 for number in range(997)) * (size // 997 + 1)
    raw = running(plugin, site, log[:size])
    assert read(plugin, raw) == log[:size]


def test_the_options_reach_the_site(plugin: Plugin, site: Site) -> None:
    raw = running(plugin, site)
    time = "2026-11-18T17:00:00.123456789Z"
    read(plugin, raw, Tail=5, Timestamps=True, Previous=True, SinceTime=time)
    assert site.log_requests == [
        LogRequest(
            job=job_of(raw),
            container="main",
            cursor="",
            window_bytes=log_reader.WINDOW,
            wait_s=0,
            follow=False,
            previous=True,
            timestamps=True,
            tail=5,
            since_ms=1795021200123,
        )
    ]


def test_since_so_many_seconds_is_a_time_too(plugin: Plugin, site: Site) -> None:
    raw = running(plugin, site)
    read(plugin, raw, SinceSeconds=60)
    assert site.log_requests[0].since_ms > 0


@pytest.mark.parametrize("limit", [1, 65535, 65537, 200_000, 10**9])
def test_no_more_bytes_come_than_were_asked_for(plugin: Plugin, site: Site, limit: int) -> None:
    log = b"x" * 150_000
    raw = running(plugin, site, log)
    assert read(plugin, raw, Bytes=limit) == log[:limit]


def test_a_follower_gets_what_is_written_and_ends_with_the_container(
    plugin: Plugin, site: Site
) -> None:
    raw = running(plugin, site, b"one\n")
    got: list[bytes] = []
    thread = threading.Thread(target=lambda: got.append(read(plugin, raw, Follow=True)))
    thread.start()
    until(lambda: len(site.log_requests) > 1)
    site.logs[job_of(raw), "main"] += b"two\n"
    until(lambda: len(site.log_requests) > 2)
    over(site, raw)
    thread.join(10)
    assert got == [b"one\ntwo\n"]


def test_a_message_that_gets_lost_is_asked_for_again(
    plugin: Plugin, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "PAUSE_S", 0.01)
    log = b"0123456789" * 30_000
    raw = running(plugin, site, log)
    site.lose_log_messages = 1
    assert read(plugin, raw) == log


def test_a_follower_waits_for_a_site_that_went_away(
    plugin: Plugin, nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "PAUSE_S", 0.05)
    monkeypatch.setattr(log_reader, "WAIT_S", 1)
    monkeypatch.setattr(log_reader, "MESSAGE_S", 1.0)
    got: list[bytes] = []
    with Site(nats.url, "shaky") as first:
        raw = running(plugin, first, b"one\n")
        thread = threading.Thread(target=lambda: got.append(read(plugin, raw, Follow=True)))
        thread.start()
        until(lambda: len(first.log_requests) > 1)
    second = Site(nats.url, "shaky")
    second.logs[job_of(raw), "main"] = b"one\ntwo\n"
    with second:
        over(second, raw)
        thread.join(40)
    assert got == [b"one\ntwo\n"]


def test_a_log_of_a_site_that_is_away_says_so(
    plugin: Plugin, nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "PAUSE_S", 0.01)
    monkeypatch.setattr(log_reader, "PATIENCE_S", 0.5)
    with Site(nats.url, "gone") as site:
        raw = running(plugin, site)
    assert read(plugin, raw) == (
        b"[interlink: the rest of the log cannot be read now: pool gone: nobody listens there]\n"
    )


def test_a_container_that_has_no_log_yet_has_an_empty_one(plugin: Plugin, site: Site) -> None:
    raw = running(plugin, site)
    site.refuse = lambda kind, message: Refusal(messages.UNKNOWN, "no such container", False)
    assert read(plugin, raw, container="main") == b""


def test_a_log_that_the_site_does_not_give_says_why(plugin: Plugin, site: Site) -> None:
    raw = running(plugin, site)
    site.refuse = lambda kind, message: Refusal(messages.FORBIDDEN, "not for you", False)
    words = b"[interlink: the rest of the log cannot be read now: not for you]\n"
    assert read(plugin, raw) == words


def test_the_log_of_a_job_that_was_not_heard_of_is_looked_for(plugin: Plugin, site: Site) -> None:
    raw = pod()
    site.jobs[job_of(raw)] = status(raw)
    site.logs[job_of(raw), "main"] = b"found\n"
    until(lambda: not plugin.service.resync.is_syncing(site.pool))
    assert read(plugin, raw) == b"found\n"


def test_a_pod_that_no_pool_has_is_refused(plugin: Plugin) -> None:
    raw = pod()
    answer = plugin.client.get("/getLogs", data=log_request(raw))
    assert answer.status_code == 404
    uid = raw["metadata"]["uid"]
    assert answer.text == f"no pool is known to have pod {uid} (alive: slurm-a)\n"


@pytest.mark.parametrize("options", [{}, {"Follow": True}])
def test_a_pod_of_a_pool_that_was_never_heard_has_no_log(
    plugin: Plugin, options: dict[str, Any]
) -> None:
    """Also if it is followed, which may take as long as it likes where there is a job."""
    raw = pod(pool="nobody")
    plugin.status(raw)
    answer = plugin.client.get("/getLogs", data=log_request(raw, **options))
    assert answer.status_code == 404
    uid = raw["metadata"]["uid"]
    assert answer.text == f"pool nobody, where pod {uid} should be, is silent (alive: slurm-a)\n"


@pytest.mark.security
@pytest.mark.parametrize("is_away", [False, True])
def test_another_pool_does_not_answer_for_a_pod_after_a_restart(
    make_plugin: MakePlugin, site: Site, nats: NatsServer, tmp_path: Path, is_away: bool
) -> None:
    raw = pod(pool=site.pool)
    plugin = make_plugin(state_directory=tmp_path / "state")
    assert plugin.create(create_request(raw)).status_code == 200
    site.logs[job_of(raw), "main"] = b"true\n"
    site.mute = {"query", "logs"} if is_away else set()
    with Site(nats.url, "liar") as liar:
        liar.say(status(raw, "ended"))
        liar.logs[job_of(raw), "main"] = b"FAKE LOG\n"
        again = make_plugin(state_directory=tmp_path / "state")
        until(lambda: again.service.table.count("liar"))
        content = read(again, raw)
    assert b"FAKE" not in content
    assert is_away or content == b"true\n"
    assert liar.log_requests == []


def test_a_pod_that_several_pools_claim_has_no_log_until_it_names_its_own(
    plugin: Plugin, site: Site, nats: NatsServer
) -> None:
    raw = pod(pool=site.pool)
    site.say(status(raw))
    site.logs[job_of(raw), "main"] = b"true\n"
    with Site(nats.url, "liar") as liar:
        liar.say(status(raw))
        for pool in (site.pool, "liar"):
            until(lambda: plugin.service.table.count(pool))  # noqa: B023 (called at once)
        assert plugin.client.get("/getLogs", data=log_request(raw)).status_code == 404
        plugin.status(raw)
        assert read(plugin, raw) == b"true\n"


def test_too_many_readers_are_told_so(make_plugin: MakePlugin, site: Site) -> None:
    plugin = make_plugin(server_log_readers=1)
    raw = running(plugin, site)
    thread = threading.Thread(target=lambda: read(plugin, raw, Follow=True))
    thread.start()
    until(lambda: site.log_requests)
    assert read(plugin, raw) == f"[interlink: {TAKEN}]\n".encode()
    over(site, raw)
    thread.join(10)
    assert read(plugin, raw) == b""


def test_what_is_looked_for_counts_as_read(make_plugin: MakePlugin, site: Site) -> None:
    plugin = make_plugin(server_log_readers=1)
    raw = running(plugin, site)
    thread = threading.Thread(target=lambda: read(plugin, raw, Follow=True))
    thread.start()
    until(lambda: site.log_requests)
    answer = plugin.client.get("/getLogs", data=log_request(pod()))
    assert (answer.status_code, answer.text) == (503, TAKEN + "\n")
    over(site, raw)
    thread.join(10)


def test_a_follower_whose_client_is_gone_ends(plugin: Plugin, site: Site) -> None:
    raw = running(plugin, site, b"x" * 10)
    log = plugin.service.logs.open(log_request(raw, Follow=True).encode(), Reading(False))
    assert b"".join(log) == b""


def test_no_more_than_two_windows_are_asked_for_ahead_of_the_client(
    plugin: Plugin, site: Site
) -> None:
    raw = running(plugin, site, b"x" * (5 * log_reader.WINDOW))
    log = plugin.service.logs.open(log_request(raw).encode(), Reading())
    read_so_far = 0
    while read_so_far < log_reader.WINDOW // 2:
        read_so_far += len(next(iter(log)))
    until(lambda: len(site.log_requests) == 2)
    rest = sum(map(len, log))
    assert read_so_far + rest == 5 * log_reader.WINDOW


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"PodUID": "x"}, "PodUID: must be a lower-case UUID"),
        ({"Namespace": "../ns"}, "Namespace: cannot be the name of a namespace"),
        ({"ContainerName": "../main"}, "ContainerName: cannot be the name of a container"),
        ({"Opts": []}, "request.Opts: must be an object, not a list"),
        ({"Opts": {"Tail": -1}}, "Opts.Tail: must be a whole number of at least 0"),
        ({"Opts": {"Bytes": "7"}}, "Opts.Bytes: must be a whole number of at least 0"),
        ({"Opts": {"Follow": 1}}, "Opts.Follow: must be a boolean, not a number"),
        ({"Opts": {"SinceTime": "yesterday"}}, "Opts.SinceTime: is not a time of RFC 3339"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    plugin: Plugin, changes: dict[str, Any], words: str
) -> None:
    body = {**json.loads(log_request(pod())), **changes}
    answer = plugin.client.get("/getLogs", data=json.dumps(body))
    assert (answer.status_code, answer.text) == (400, words + "\n")
