"""The server for probes: its pages, and what a client may cost."""

from __future__ import annotations

import http.client
import select
import socket
import time
from collections.abc import Iterator

import pytest

from templates.program import health_server
from templates.program.health_server import LONGEST_HEAD, HealthServer, Page, line, listen


def broken() -> Page:
    raise ValueError("a page that cannot be made")


@pytest.fixture
def server() -> Iterator[HealthServer]:
    pages = {
        "/healthz": lambda: line(200, "ok"),
        "/readyz": lambda: line(503, "not yet"),
        "/broken": broken,
    }
    found = HealthServer(listen("listen", "127.0.0.1:0"), pages)
    found.start()
    yield found
    found.stop()


def client(server: HealthServer) -> socket.socket:
    return socket.create_connection(server.server_address[:2], timeout=10)


def asked(server: HealthServer, raw: bytes) -> bytes:
    """All that the server says to some bytes."""
    received = b""
    with client(server) as connection:
        connection.sendall(raw)
        while piece := connection.recv(65536):
            received += piece
    return received


def got(server: HealthServer, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    host, port = server.server_address[:2]
    connection = http.client.HTTPConnection(str(host), int(port), timeout=10)
    connection.request(method, path, body)
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


@pytest.mark.parametrize(
    ("method", "path", "answer"),
    [
        ("GET", "/healthz", (200, b"ok\n")),
        ("GET", "/healthz?again", (200, b"ok\n")),
        ("HEAD", "/healthz", (200, b"")),
        ("GET", "/readyz", (503, b"not yet\n")),
        ("GET", "/", (404, b"here are /healthz, /readyz and /broken\n")),
        ("POST", "/", (404, b"here are /healthz, /readyz and /broken\n")),
        ("POST", "/healthz", (405, b"Method Not Allowed\n")),
        ("DELETE", "/healthz", (501, b"Unsupported method ('DELETE')\n")),
    ],
)
def test_a_page_is_what_its_function_says(
    server: HealthServer, method: str, path: str, answer: tuple[int, bytes]
) -> None:
    assert got(server, method, path) == answer


def test_a_body_changes_nothing(server: HealthServer) -> None:
    assert got(server, "GET", "/healthz", b"[]") == (200, b"ok\n")


def test_a_head_may_come_in_pieces_and_be_so_long_and_no_longer(server: HealthServer) -> None:
    head = b"GET /healthz HTTP/1.1\r\nX: "
    longest = head + b"x" * (LONGEST_HEAD - len(head) - 4) + b"\r\n\r\n"
    with client(server) as connection:
        for start in range(0, len(longest), 1000):
            connection.sendall(longest[start : start + 1000])
            time.sleep(0.001)
        assert connection.recv(65536).startswith(b"HTTP/1.0 200 ")
    assert asked(server, longest[:-4] + b"x\r\n\r\n").startswith(b"HTTP/1.0 431 ")
    assert asked(server, b"x" * (LONGEST_HEAD + 1)).startswith(b"HTTP/1.0 431 ")


def test_what_is_no_request_is_refused(server: HealthServer) -> None:
    for junk in (b"what\r\n\r\n", b"GET / HTTP/x\r\n\r\n", b"\x16\x03\x01\x02\r\n\r\n"):
        assert asked(server, junk).startswith(b"HTTP/1.0 400 ")


def test_a_slow_client_is_not_waited_for(
    server: HealthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_server, "REQUEST_S", 0.3)
    began = time.monotonic()
    with client(server) as connection:
        while not select.select([connection], [], [], 0.05)[0]:
            connection.sendall(b"G")
        assert connection.recv(1) == b""
    assert 0.2 < time.monotonic() - began < 3


def test_the_oldest_of_too_many_makes_room(
    server: HealthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_server, "MOST_CONNECTIONS", 3)
    opened = [client(server) for _ in range(5)]
    assert [connection.recv(1) for connection in opened[:2]] == [b"", b""]
    assert got(server, "GET", "/healthz") == (200, b"ok\n")
    assert opened[2].recv(1) == b""
    assert select.select(opened[3:], [], [], 0.1)[0] == []
    for connection in opened:
        connection.close()


def test_a_page_that_fails_is_in_the_log(
    server: HealthServer, caplog: pytest.LogCaptureFixture
) -> None:
    assert asked(server, b"GET /broken HTTP/1.1\r\n\r\n") == b""
    assert "a request for a page failed" in caplog.text
    assert "a page that cannot be made" in caplog.text
    assert got(server, "GET", "/healthz")[0] == 200
