"""Pods created per second: POST /create until it is journaled at the site, over the real programs.

The site's core is taken by a sleeping job, so that all others wait in its queue: what is measured
is ours, not the jobs'. One rival answers "hello" to the same clients under the same gunicorn. The
other one is the road with nothing of ours on it (``bare_road.py``); it is held to the same bar, as
no plugin can reach more of it than this one does, however little it does.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.bench.asking import GTHREAD, REPO, Clients, Question, bare_flask
from tests.bench.clients import UID
from tests.bench.rows import Row
from tests.support.nats_server import NatsServer
from tests.support.system import request_of, running

ROUNDS = 5
WINDOW_S = 2.0
FULL = {"resources": {"cpu": "1", "memory": "1Gi", "pods": "1"}}


def run() -> list[Row]:
    """Measure in turns."""
    with (
        tempfile.TemporaryDirectory(prefix="interlink-bench-") as folder,
        running(Path(folder), pool=FULL) as system,
        bare_flask() as port,
        bare_road(Path(folder) / "road") as road,
        Clients() as clients,
    ):
        sleeper = system.run("sleep 100000")
        request = request_of("true")
        request["pod"]["metadata"]["uid"] = UID.decode()
        body = json.dumps(request)
        creates = [Question(at, "POST", "/create", body) for at in (system.port, road)]
        mine, least, hello = clients.in_turns((*creates, Question(port)), ROUNDS, WINDOW_S)
        system.plugin.delete(sleeper)
        system.until(lambda: not system.directory(sleeper).exists(), "it has left no process")
    words = "Flask + gunicorn hello"
    return [
        Row("create", mine, "pods/s", words, hello, ">=", 0.35),
        Row("create-bare-road", least, "pods/s", words, hello, ">=", 0.35),
        Row("create-of-road", mine, "pods/s", "the bare road", least, ">=", 0.6),
    ]


@contextlib.contextmanager
def bare_road(folder: Path) -> Iterator[int]:
    """Both ends of tests/bench/bare_road.py, and a NATS server between them: the port."""
    (folder / "jobs").mkdir(parents=True)
    server = NatsServer(folder / "nats").start()
    os.environ["ROAD"] = f"{server.websocket_url} {server.ca_file}"
    command = [sys.executable, "-P", "-m", "tests.bench.bare_road", str(folder / "jobs")]
    try:
        with subprocess.Popen(command, cwd=REPO, stdout=subprocess.PIPE) as far_end:
            try:
                assert far_end.stdout is not None
                assert far_end.stdout.readline() == b"ready\n"
                config = ("--config", "python:tests.bench.bare_road")
                with bare_flask((*GTHREAD, *config), "tests.bench.bare_road:app") as port:
                    yield port
            finally:
                far_end.kill()
    finally:
        server.stop()
