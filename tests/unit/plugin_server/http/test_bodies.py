"""Requests that are larger than interLink's ever are: refused, cheaply, and nobody else notices."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import select
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plugin_server.http.bodies import TooLarge, read_body
from tests.support.nats_server import NatsServer
from tests.unit.plugin_server.conftest import until
from tests.unit.plugin_server.gunicorn import Gunicorn
from tests.unit.plugin_server.pod_builders import create_request, job_of, pod
from tests.unit.plugin_server.site import Site

MIB = 1024 * 1024
CHUNKED = b"Transfer-Encoding: chunked\r\n"
LARGEST_CREATE = 2  # MiB, by the settings of this server


@pytest.fixture(scope="module")
def server(nats: NatsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gunicorn]:
    folder = tmp_path_factory.mktemp("plugin")
    settings = {
        "server": {"largest_create_mib": LARGEST_CREATE},
        "logging": {"level": "debug"},
    }
    with Site(nats.url), Gunicorn(folder, nats, **settings) as found:
        until(lambda: b"resources" in found.call("GET", "/status", [])[1])
        yield found


@contextlib.contextmanager
def client(server: Gunicorn) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        yield connection


def head(method: str, path: str, more: bytes) -> bytes:
    return f"{method} {path} HTTP/1.1\r\nConnection: close\r\n".encode() + more + b"\r\n"


def length(size: int) -> bytes:
    return b"Content-Length: %d\r\n" % size


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(content), content)


def all_of(connection: socket.socket) -> bytes:
    """What comes until the server closes the connection."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(65536):
            received += piece
    return received


def sent_until_answered(connection: socket.socket, pieces: Iterable[bytes]) -> tuple[int, int]:
    """How many bytes were sent until there was an answer; and its code."""
    sent = 0
    for piece in pieces:
        if select.select([connection], [], [], 0)[0]:
            break
        try:
            connection.sendall(piece)
        except OSError:
            break
        sent += len(piece)
    received = all_of(connection)
    lines = received.partition(b"\r\n\r\n")[2].splitlines()
    assert len(lines) == 1, received
    assert lines[0].startswith(b"the body of the request is too large: at most ")
    return sent, int(received.split()[1])


def memory_of(server: Gunicorn, key: str = "VmHWM") -> int:
    """Of the worker, in MiB: the most it ever had, or what it has now (``VmRSS``)."""
    (worker,) = server.workers()
    text = Path(f"/proc/{worker}/status").read_text()
    return int(text.partition(f"{key}:")[2].split()[0]) // 1024


ALL = [
    ("POST", "/create", LARGEST_CREATE),
    ("GET", "/status", 16),
    ("POST", "/delete", 16),
    ("GET", "/getLogs", 16),
    ("GET", "/healthz", 0),
    ("POST", "/nowhere", 0),
]


@pytest.mark.parametrize(("method", "path", "limit"), ALL)
def test_a_body_that_says_that_it_is_too_large_is_not_read(
    server: Gunicorn, method: str, path: str, limit: int
) -> None:
    before = memory_of(server)
    endless = itertools.chain((head(method, path, length(10**12)),), itertools.repeat(b"x" * MIB))
    with client(server) as connection:
        sent, code = sent_until_answered(connection, endless)
    assert code == 413
    assert sent < 16 * MIB  # what the system takes for us
    assert memory_of(server) - before < 4
    assert server.call("GET", "/status", [])[0] == 200


@pytest.mark.parametrize(("method", "path", "limit"), ALL)
def test_a_body_in_chunks_is_read_to_its_limit_and_no_further(
    server: Gunicorn, method: str, path: str, limit: int
) -> None:
    before = memory_of(server)
    endless = itertools.chain((head(method, path, CHUNKED),), itertools.repeat(chunk(b"x" * 65536)))
    with client(server) as connection:
        sent, code = sent_until_answered(connection, endless)
    assert code == 413
    assert sent < (limit + 16) * MIB
    assert memory_of(server) - before < 3 * limit + 8
    assert server.call("GET", "/status", [])[0] == 200


def test_refused_bodies_leave_nothing_in_memory(server: Gunicorn) -> None:
    many = [chunk(b"x" * 65536)] * (17 * MIB // 65536)

    def refuse() -> int:
        with client(server) as connection:
            request = (head("POST", "/delete", CHUNKED), *many)
            assert sent_until_answered(connection, request)[1] == 413
        return memory_of(server, "VmRSS")

    refuse()
    before = refuse()
    assert [refuse() for _ in range(5)][-1] - before < 20


def test_many_tiny_chunks_are_a_body_and_hold_up_nobody(server: Gunicorn) -> None:
    raw = pod()
    raw["metadata"]["annotations"] = {"note": "x" * 20_000}
    body = json.dumps(create_request(raw)).encode()
    pings: list[float] = []
    is_over = threading.Event()

    def ping() -> None:
        while not is_over.is_set():
            began = time.monotonic()
            assert server.call("GET", "/status", [])[0] == 200
            pings.append(time.monotonic() - began)

    asking = threading.Thread(target=ping)
    asking.start()
    with client(server) as connection:
        connection.sendall(head("POST", "/create", CHUNKED))
        connection.sendall(b"".join(chunk(bytes([byte])) for byte in body) + b"0\r\n\r\n")
        answer = all_of(connection)
    is_over.set()
    asking.join()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["PodJID"] == job_of(raw)
    assert max(pings) < 2


def test_a_create_may_have_what_the_settings_say_and_no_byte_more(server: Gunicorn) -> None:
    request = create_request(raw := pod())
    request["padding"] = ""
    room = LARGEST_CREATE * MIB - len(json.dumps(request))
    request["padding"] = "x" * room
    code, answer = server.call("POST", "/create", request)
    assert (code, json.loads(answer)["PodJID"]) == (200, job_of(raw))
    request["padding"] += "x"
    assert server.call("POST", "/create", request) == (
        413,
        f"the body of the request is too large: at most {LARGEST_CREATE} MiB here\n".encode(),
    )
    counted = server.call("GET", "/metrics")[1].decode()
    assert 'calls_total{endpoint="create",outcome="refused"}' in counted


@pytest.mark.parametrize("said", ["0000000000000000002", "00000000000000000000000002"])
def test_a_length_of_many_digits_is_the_length_of_one_request(server: Gunicorn, said: str) -> None:
    """What was no length to one of two readers gave two answers to one request."""
    with client(server) as connection:
        connection.sendall(head("GET", "/status", f"Content-Length: {said}\r\n".encode()) + b"[]")
        received = all_of(connection)
    assert received.count(b"HTTP/1.1 ") == 1
    assert received.startswith(b"HTTP/1.1 200 ")


def test_a_header_does_not_say_where_the_application_is(server: Gunicorn) -> None:
    with contextlib.closing(server.connect()) as connection:
        for name in ("SCRIPT_NAME", "SCRIPT-NAME", "PATH_INFO", "REMOTE_USER"):
            connection.request("GET", "/healthz", headers={name: "/x"})
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (200, b"ok\n"), name


@pytest.mark.parametrize(
    "long",
    [
        b"GET /" + b"x" * 200_000,
        b"GET /status HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer planted\r\nX: " + b"x" * 400_000,
        b"GET /status HTTP/1.1\r\nAuthorization: Bearer planted\r\n" + b"X-A: b\r\n" * 100_000,
        b"GET /status HTTP/1.1\r\n" + b"x" * 300 + b" Bearer planted\r\n" * 20 + b"\r\n",
    ],
    ids=["line", "header", "headers", "no header"],
)
@pytest.mark.parametrize("cut_off", [False, True])
def test_a_long_head_gets_a_short_answer_and_no_place_in_the_log(
    server: Gunicorn, long: bytes, cut_off: bool
) -> None:
    before = len(server.log())
    with client(server) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(long[:7000] if cut_off else long)
            connection.shutdown(socket.SHUT_WR)
        received = all_of(connection)
    if received or not cut_off:
        assert received.split()[1] in {b"400", b"414", b"431"}
    assert len(received) < 1000
    assert server.call("GET", "/status", [])[0] == 200
    said = server.log()[before:]
    assert "planted" not in said
    assert "Traceback" not in said
    assert len(said) < 1000


def environment(body: bytes, **more: Any) -> dict[str, Any]:
    return {"wsgi.input": io.BytesIO(body), **more}


def test_a_body_is_read_up_to_its_limit() -> None:
    assert read_body(environment(b"12345", CONTENT_LENGTH="5"), 5) == b"12345"
    assert read_body(environment(b"12345"), 5) == b"12345"
    assert read_body(environment(b"", CONTENT_LENGTH=""), 0) == b""
    for refused in (environment(b"12345", CONTENT_LENGTH="5"), environment(b"12345")):
        with pytest.raises(TooLarge, match="at most nothing here"):
            read_body(refused, 0)
        assert len(refused["wsgi.input"].read()) >= 4
