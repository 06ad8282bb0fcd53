"""How many create requests become finished jobs in a second, on one core.

The rival is a bare Flask application under gunicorn, as the plugin runs it (one worker, four
threads), answering "hello" to eight clients that keep their connections. Both are measured in
turns, so that a busy moment of the machine meets both, and the median of each counts.
"""

from __future__ import annotations

import contextlib
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from templates.build_config import BuildConfig
from templates.job import build
from templates.request import read_create_request
from tests.bench.create_request import body
from tests.bench.rows import Row

REPO = Path(__file__).resolve().parents[2]
ROUNDS = 7
WINDOW_S = 1.0
REQUESTS = 100  # all different, so that it is a translation each time and no recollection
GUNICORN_THREADS = 4
CLIENTS = 8


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(port: int, server: subprocess.Popen[bytes], limit_s: float = 20) -> None:
    """Return as soon as the server takes connections."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end and server.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
    raise RuntimeError("gunicorn did not start")


@contextlib.contextmanager
def hello_server() -> Iterator[int]:
    """The rival, on a port of its own."""
    port = free_port()
    options = ["--worker-class", "gthread", "--workers", "1", "--threads", str(GUNICORN_THREADS)]
    options += [
        "--bind",
        f"127.0.0.1:{port}",
        "--chdir",
        str(REPO),
        "--log-level",
        "error",
        "--keep-alive",
        "60",
    ]
    command = [sys.executable, "-m", "gunicorn", *options, "tests.bench.flask_hello:app"]
    with subprocess.Popen(command) as server:
        try:
            wait_for(port, server)
            yield port
        finally:
            server.terminate()


@contextlib.contextmanager
def asking(port: int) -> Iterator[tuple[IO[str], IO[str]]]:
    """The clients: seconds in, responses per second out."""
    command = [sys.executable, "-P", "-m", "tests.bench.clients", str(port), str(CLIENTS)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as clients:
        assert clients.stdin is not None
        assert clients.stdout is not None
        try:
            yield clients.stdin, clients.stdout
        finally:
            clients.kill()


def theirs(clients: tuple[IO[str], IO[str]]) -> float:
    """Responses per second of the rival in one window."""
    clients[0].write(f"{WINDOW_S}\n")
    clients[0].flush()
    return float(clients[1].readline())


def ours(requests: Sequence[bytes], config: BuildConfig) -> float:
    """Jobs per second of ours in one window."""
    count, start = 0, time.perf_counter()
    while (now := time.perf_counter()) - start < WINDOW_S:
        for request in requests:
            build(read_create_request(request), config)
        count += len(requests)
    return count / (now - start)


def run() -> list[Row]:
    """Measure in turns; the first round of each only warms up."""
    requests, config = [body(number) for number in range(REQUESTS)], BuildConfig()
    measured: list[tuple[float, float]] = []
    with hello_server() as port, asking(port) as clients:
        for _ in range(ROUNDS + 1):
            measured.append((ours(requests, config), theirs(clients)))
    mine = statistics.median(pair[0] for pair in measured[1:])
    rival = statistics.median(pair[1] for pair in measured[1:])
    return [Row("translate", mine, "pods/s", "Flask + gunicorn hello", rival, ">=", 2.5)]
