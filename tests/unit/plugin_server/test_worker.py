"""Connections to interLink's port: what one client does is answered right, and no other suffers."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.nats_server import NatsServer
from tests.unit.plugin_server.conftest import until
from tests.unit.plugin_server.gunicorn import Gunicorn
from tests.unit.plugin_server.pod_builders import create_request, job_of, log_request, pod, status
from tests.unit.plugin_server.site import Site

PING = b"GET /status HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n[]"


@pytest.fixture(scope="module")
def server(nats: NatsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gunicorn]:
    with Site(nats.url), Gunicorn(tmp_path_factory.mktemp("plugin"), nats) as found:
        until(lambda: b"resources" in found.call("GET", "/status", [])[1])
        yield found


@contextlib.contextmanager
def client(server: Gunicorn) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        yield connection


def answers(connection: socket.socket, count: int) -> list[tuple[int, bytes]]:
    """So many answers, each with its length in its head, and no byte more."""
    received, found = b"", []
    while len(found) < count:
        head, end, rest = received.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
        if end and length and len(rest) >= int(length[1]):
            found.append((int(head.split()[1]), rest[: int(length[1])]))
            received = rest[int(length[1]) :]
            continue
        piece = connection.recv(65536)
        assert piece, (received, found)
        received += piece
    assert received == b""
    return found


def is_closed(connection: socket.socket) -> bool:
    return connection.recv(1) == b""


def test_a_body_in_chunks_is_a_body(server: Gunicorn) -> None:
    body = json.dumps(create_request(raw := pod())).encode()
    half = len(body) // 2
    with client(server) as connection:
        connection.sendall(
            b"POST /create HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        for piece in (body[:half], body[half:], b""):
            connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
        ((code, answer),) = answers(connection, 1)
    assert (code, json.loads(answer)["PodJID"]) == (200, job_of(raw))


@pytest.mark.parametrize(
    "junk",
    [
        b"\r\n\r\n\r\n\r\n",
        b"no request at all\r\n\r\n",
        b"GET /status HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n[]",
        b"GET /status HTTP/1.1\r\nContent-Length : 2\r\n\r\n[]",
        b"POST /create HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nno number\r\n",
        b"GET /" + b"x" * 70_000,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused_and_harms_nobody(server: Gunicorn, junk: bytes) -> None:
    with client(server) as connection:
        connection.sendall(junk)
        received = b""
        while piece := connection.recv(65536):
            received += piece
    assert re.match(rb"HTTP/1\.1 4\d\d ", received), received
    assert b"Traceback" not in received
    assert server.call("GET", "/status", [])[0] == 200


def test_what_is_under_way_when_it_stops_is_answered_and_idle_clients_are_let_go(
    nats: NatsServer, tmp_path: Path
) -> None:
    with Site(nats.url, "stops") as site, Gunicorn(tmp_path, nats) as found:
        until(lambda: b"resources" in found.call("GET", "/status", [])[1])
        (worker,) = found.workers()
        arrived, go = threading.Event(), threading.Event()

        def hold(*_: object) -> None:
            arrived.set()
            go.wait(30)

        site.refuse = hold
        with client(found) as idle, contextlib.closing(found.connect()) as busy:
            idle.sendall(PING)
            answers(idle, 1)
            busy.request("POST", "/create", json.dumps(create_request(raw := pod(pool=site.pool))))
            assert arrived.wait(10)
            os.kill(worker, signal.SIGTERM)
            assert is_closed(idle)
            go.set()
            answer = busy.getresponse()
            assert answer.status == 200
            assert json.loads(answer.read())["PodJID"] == job_of(raw)
        found.until_replaced(worker)


def test_a_follower_ends_when_its_worker_stops(nats: NatsServer, tmp_path: Path) -> None:
    with Site(nats.url, "stops") as site, Gunicorn(tmp_path, nats) as found:
        raw = pod(pool=site.pool)
        site.say(status(raw, "started"))
        site.logs[job_of(raw), "main"] = b"first\n"
        until(lambda: json.loads(found.call("GET", "/status", [raw])[1]))
        with contextlib.closing(found.connect()) as follower:
            follower.request("GET", "/getLogs", log_request(raw, Follow=True))
            answer = follower.getresponse()
            assert answer.read(6) == b"first\n"
            (worker,) = found.workers()
            os.kill(worker, signal.SIGTERM)
            with contextlib.suppress(http.client.IncompleteRead):
                assert answer.read() == b""
        found.until_replaced(worker)
