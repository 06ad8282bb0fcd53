"""GET /status of one pod, as the virtual kubelet asks, and of a thousand pods in one call.

One virtual kubelet asks for its pods one after the other: that is the row with one client.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from tests.bench.asking import CLIENTS, Clients, Question, bare_flask
from tests.bench.create import FULL
from tests.bench.rows import Row
from tests.support.system import request_of, running

ROUNDS = 5
WINDOW_S = 1.5
MANY = 1000


def run() -> list[Row]:
    """Measure in turns."""
    with (
        tempfile.TemporaryDirectory(prefix="interlink-bench-") as name,
        running(Path(name), pool=FULL) as system,
        bare_flask() as port,
        Clients() as clients,
        Clients(1) as client,
    ):
        pods: list[dict[str, Any]] = [system.run("sleep 100000")]
        for _ in range(MANY - 1):
            request = request_of("true")
            system.plugin.create(request)
            pods.append(request["pod"])
        answer = Path(name) / "answer.json"
        answer.write_text(json.dumps(system.plugin.status(pods)))
        one = Question(system.port, "GET", "/status", json.dumps(pods[:1]))
        many = one._replace(body=json.dumps(pods))
        decode = Question(port, "GET", f"/decode?answer={answer}", many.body)
        single, hello = clients.in_turns((one, Question(port)), ROUNDS, WINDOW_S)
        alone, hello_alone = client.in_turns((one, Question(port)), ROUNDS, WINDOW_S)
        thousand, rival = clients.in_turns((many, decode), ROUNDS, WINDOW_S)
    bare, bulk = "Flask + gunicorn hello", "Flask: decode, encode a ready list"
    return [
        Row("status-one", 1e3 * CLIENTS / single, "ms", bare, 1e3 * CLIENTS / hello, "<=", 1.2),
        Row("status-one-client", 1e3 / alone, "ms", bare, 1e3 / hello_alone, "<=", 1.2),
        Row("status-1000", 1e3 * CLIENTS / thousand, "ms", bulk, 1e3 * CLIENTS / rival, "<=", 2),
    ]
