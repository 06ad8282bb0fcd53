"""The worker's connections: whatever one client does, it is answered right and no other suffers."""

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
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


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


def test_a_request_may_come_byte_by_byte(server: Gunicorn) -> None:
    with client(server) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for request in (PING, HEALTH):
            for byte in request:
                connection.sendall(bytes([byte]))
            ((code, _),) = answers(connection, 1)
            assert code == 200


def test_requests_sent_in_one_piece_are_all_answered_in_their_order(server: Gunicorn) -> None:
    refused = b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"
    create = json.dumps(create_request(raw := pod())).encode()
    create = b"POST /create HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (
        len(create),
        create,
    )
    with client(server) as connection:
        connection.sendall(HEALTH + create + PING + refused + PING)
        connection.shutdown(socket.SHUT_WR)
        found = answers(connection, 5)
        assert is_closed(connection)
    assert [code for code, _ in found] == [200, 200, 200, 404, 200]
    assert json.loads(found[1][1])["PodJID"] == job_of(raw)
    assert found[2] == found[4]


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


def test_the_same_head_again_says_the_same_of_another_body(server: Gunicorn) -> None:
    pods = [pod(name="x" * length) for length in (3, 30, 3)]
    for _ in range(2):
        for close in (b"", b"Connection: close\r\n"):
            with client(server) as connection:
                for raw in pods:
                    body = json.dumps(create_request(raw)).encode()
                    length = b"content-length: %d\r\n" % len(body)
                    connection.sendall(
                        b"POST /create HTTP/1.1\r\nHost: x\r\n%b%b\r\n%b" % (length, close, body)
                    )
                    ((code, answer),) = answers(connection, 1)
                    assert (code, json.loads(answer)["PodJID"]) == (200, job_of(raw))
                    if close:
                        assert is_closed(connection)
                        break


@pytest.mark.parametrize(
    "more", [b"Content-Length: 3", b"Transfer-Encoding: chunked", b"content-length : 2"]
)
def test_a_head_that_says_twice_how_long_its_body_is_was_never_seen_before(
    server: Gunicorn, more: bytes
) -> None:
    """Each time, and after the same head without that."""
    for between in (b"", more + b"\r\n", b"", more + b"\r\n"):
        with client(server) as connection:
            head = b"GET /status HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
            body = b"2\r\n[]\r\n0\r\n\r\n" if b"chunked" in between else b"[]"
            connection.sendall(head + between + b"\r\n" + body)
            connection.shutdown(socket.SHUT_WR)
            ((code, _),) = answers(connection, 1)
            assert code == (400 if between else 200)


def test_a_client_that_waits_to_be_told_to_go_on_is_told(server: Gunicorn) -> None:
    with client(server) as connection:
        connection.sendall(
            b"GET /status HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
        )
        assert connection.recv(1024) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"[]")
        ((code, _),) = answers(connection, 1)
        assert code == 200


def test_a_client_that_says_no_more_still_gets_its_answer(server: Gunicorn) -> None:
    body = json.dumps(create_request(pod())).encode()
    create = b"POST /create HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    for request in (PING, HEALTH, create):
        with client(server) as connection:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            ((code, _),) = answers(connection, 1)
            assert code == 200
            assert is_closed(connection)


def test_a_client_that_wants_no_other_answer_is_let_go(server: Gunicorn) -> None:
    old = b"GET /status HTTP/1.0\r\nContent-Length: 2\r\n\r\n[]"
    for request in (old, PING.replace(b"Host: x", b"Connection: close")):
        with client(server) as connection:
            connection.sendall(request)
            ((code, _),) = answers(connection, 1)
            assert code == 200
            assert is_closed(connection)


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


def test_a_client_that_reads_nothing_holds_up_nobody_else(
    server: Gunicorn, nats: NatsServer
) -> None:
    with Site(nats.url, "reads-nothing") as site, socket.socket() as connection:
        raws = [pod(pool=site.pool) for _ in range(1500)]
        site.say(*(status(raw, "queued") for raw in raws))
        until(lambda: len(json.loads(server.call("GET", "/status", raws)[1])) == len(raws), 30)
        body = json.dumps(raws).encode()
        ask = b"GET /status HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        connection.settimeout(30)
        connection.connect(("127.0.0.1", server.port))
        sender = threading.Thread(target=connection.sendall, args=(ask * 8,))
        sender.start()
        assert connection.recv(1, socket.MSG_PEEK)
        for _ in range(20):
            assert server.call("GET", "/status", [])[0] == 200
        assert [len(json.loads(said)) for _, said in answers(connection, 8)] == [len(raws)] * 8
        sender.join()


def test_it_takes_more_connections_than_it_has_threads(server: Gunicorn) -> None:
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(client(server)) for _ in range(300)]
        for connection in connections:
            connection.sendall(PING)
        for connection in connections:
            ((code, _),) = answers(connection, 1)
            assert code == 200


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
            assert (answer.status, answer.getheader("Connection")) == (200, "close")
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
