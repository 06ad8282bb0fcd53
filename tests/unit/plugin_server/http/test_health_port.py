"""The port for health and metrics: whatever strangers do there, interLink's port goes on."""

from __future__ import annotations

import contextlib
import select
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.lib.interlink import free_port
from templates.program.health_server import MOST_CONNECTIONS
from tests.support.nats_server import NatsServer
from tests.unit.plugin_server.conftest import until
from tests.unit.plugin_server.gunicorn import Gunicorn
from tests.unit.plugin_server.pod_builders import create_request, pod
from tests.unit.plugin_server.site import Site

MOST_MEMORY = 20  # MiB
MOST_DELAY_S = 0.05
MEASURED = 60


@pytest.fixture
def server(nats: NatsServer, tmp_path: Path) -> Iterator[Gunicorn]:
    health = f"127.0.0.1:{free_port()}"
    with Site(nats.url), Gunicorn(tmp_path, nats, health_listen=health) as found:
        found.health = int(health.partition(":")[2])
        until(lambda: b"resources" in found.call("GET", "/status", [])[1])
        yield found


def stranger(server: Gunicorn) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.health), timeout=30)


def page(server: Gunicorn, path: str) -> bytes:
    """The answer, for a client that tries again when it was not let in."""

    def answer() -> bytes:
        with contextlib.suppress(OSError), stranger(server) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            received = b""
            while piece := connection.recv(65536):
                received += piece
            return received
        return b""

    found: bytes = until(answer, 5)
    return found


def memory_of(server: Gunicorn) -> int:
    (worker,) = server.workers()
    status = Path(f"/proc/{worker}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


def median_of(server: Gunicorn) -> tuple[float, float]:
    """Seconds that a ping and a create take at interLink's port."""

    def took(method: str, path: str, body: object) -> float:
        began = time.monotonic()
        assert server.call(method, path, body)[0] == 200
        return time.monotonic() - began

    pings = [took("GET", "/status", []) for _ in range(MEASURED)]
    creates = [took("POST", "/create", create_request(pod())) for _ in range(MEASURED)]
    return statistics.median(pings), statistics.median(creates)


@contextlib.contextmanager
def at_once(work: list[threading.Thread], stop: threading.Event) -> Iterator[None]:
    for thread in work:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in work:
            thread.join()


def pouring(server: Gunicorn, head: bytes, more: bytes, stop: threading.Event) -> threading.Thread:
    """A client that sends what has no end, and comes again when it is thrown out."""

    def pour() -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError), stranger(server) as connection:
                connection.sendall(head)
                while not stop.is_set():
                    connection.sendall(more)

    return threading.Thread(target=pour)


def trickling(server: Gunicorn, stop: threading.Event) -> threading.Thread:
    """A client with a thousand connections, all of them with a byte now and then."""

    def trickle() -> None:
        with contextlib.ExitStack() as stack:
            opened = [stack.enter_context(stranger(server)) for _ in range(1000)]
            while not stop.wait(0.5):
                for connection in opened:
                    with contextlib.suppress(OSError):
                        connection.sendall(b"G")

    return threading.Thread(target=trickle)


@pytest.mark.security
@pytest.mark.parametrize("attack", ["heads", "a long line", "a body", "chunks", "connections"])
def test_what_strangers_do_there_costs_little_and_delays_nobody(
    server: Gunicorn, attack: str
) -> None:
    median_of(server)  # so that its memory has what it needs anyway
    page(server, "/metrics")
    calm, memory = median_of(server), memory_of(server)
    stop = threading.Event()
    get, length = b"GET /healthz HTTP/1.1\r\n", b"Content-Length: 99999999999\r\n\r\n"
    attacks = {
        "heads": [pouring(server, get, b"X-Y: z\r\n" * 1000, stop) for _ in range(4)],
        "a long line": [pouring(server, b"GET /", b"x" * 65536, stop) for _ in range(4)],
        "a body": [pouring(server, get + length, b"x" * 65536, stop) for _ in range(4)],
        "chunks": [
            pouring(server, get + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 1000, stop)
            for _ in range(4)
        ],
        "connections": [trickling(server, stop)],
    }
    with at_once(attacks[attack], stop):
        under_attack = median_of(server)
        assert page(server, "/healthz").endswith(b"\r\n\r\nok\n")
    assert max(b - a for a, b in zip(calm, under_attack)) < MOST_DELAY_S
    assert memory_of(server) - memory < MOST_MEMORY


def test_a_probe_gets_through_when_all_connections_are_taken(server: Gunicorn) -> None:
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(stranger(server)) for _ in range(2 * MOST_CONNECTIONS)]
        began = time.monotonic()
        assert page(server, "/readyz").endswith(b"\r\n\r\nok\n")
        assert time.monotonic() - began < 1
        until(lambda: sum(is_closed(one) for one in opened) >= MOST_CONNECTIONS)
        assert not is_closed(opened[-1])


def is_closed(connection: socket.socket) -> bool:
    return bool(select.select([connection], [], [], 0)[0])


def test_all_workers_answer_there(nats: NatsServer, tmp_path: Path) -> None:
    port = free_port()
    more = {"health_listen": f"127.0.0.1:{port}", "server": {"workers": 2}}
    with Gunicorn(tmp_path, nats, **more) as found:
        found.health = port
        for _ in range(20):
            assert page(found, "/healthz").endswith(b"\r\n\r\nok\n")
        assert found.stop() == 0
        with pytest.raises(ConnectionRefusedError):
            stranger(found)


def test_a_port_that_is_taken_is_one_line(nats: NatsServer, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        found = Gunicorn(tmp_path, nats, health_listen=where)
        with pytest.raises(AssertionError):
            found.start()
    line = f"plugin_server: health_listen: {where}: Address already in use"
    assert line in found.log().splitlines()
    assert "Traceback" not in found.log()
