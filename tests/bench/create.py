"""Pods created per second: POST /create until it is journaled at the site, over the real programs.

The site's core is taken by a sleeping job, so that all others wait in its queue: what is measured
is ours, not the jobs'. The rival answers "hello" to the same clients under the same gunicorn.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from tests.bench.asking import Clients, Question, bare_flask
from tests.bench.clients import UID
from tests.bench.rows import Row
from tests.system import request_of, running

ROUNDS = 5
WINDOW_S = 2.0
FULL = {"resources": {"cpu": "1", "memory": "1Gi", "pods": "1"}}


def run() -> list[Row]:
    """Measure in turns."""
    with (
        tempfile.TemporaryDirectory(prefix="interlink-bench-") as folder,
        running(Path(folder), pool=FULL) as system,
        bare_flask() as port,
        Clients() as clients,
    ):
        system.run("sleep 100000")
        request = request_of("true")
        request["pod"]["metadata"]["uid"] = UID.decode()
        ours = Question(system.port, "POST", "/create", json.dumps(request))
        mine, rival = clients.in_turns((ours, Question(port)), ROUNDS, WINDOW_S)
    return [Row("create", mine, "pods/s", "Flask + gunicorn hello", rival, ">=", 0.5)]
