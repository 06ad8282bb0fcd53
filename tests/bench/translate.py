"""How many create requests become finished jobs in a second, on one core.

They are those of the pods of one Job, as nearly all are.

The rival is a bare Flask application under a gunicorn that was told nothing but the address,
answering "hello" to eight clients. Both are measured in turns, so that a busy moment of the machine
meets both, and the median of each counts.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Sequence

from templates.pod.create_request import read_create_request
from templates.site.build_config import BuildConfig
from templates.translation.build import build
from tests.bench.asking import Clients, Question, bare_flask
from tests.bench.create_request import body
from tests.bench.rows import Row

ROUNDS = 7
WINDOW_S = 1.0
AT_ONCE = 100
REQUESTS = 2000  # all different, so that it is a translation each time and no recollection


def ours(requests: Sequence[bytes], config: BuildConfig) -> float:
    """Jobs per second of ours in one window."""
    count, start = 0, time.perf_counter()
    while (now := time.perf_counter()) - start < WINDOW_S:
        place = count % len(requests)
        for request in requests[place : place + AT_ONCE]:
            build(read_create_request(request), config)
        count += AT_ONCE
    return count / (now - start)


def run() -> list[Row]:
    """Measure in turns; the first round of each only warms up."""
    requests, config = [body(number) for number in range(REQUESTS)], BuildConfig()
    gc.collect()
    gc.freeze()  # as a worker of the plugin does when it starts
    measured: list[tuple[float, float]] = []
    with bare_flask(options=()) as port, Clients() as clients:
        for _ in range(ROUNDS + 1):
            rival = clients.rate(Question(port), WINDOW_S)
            measured.append((ours(requests, config), rival))
    mine = statistics.median(pair[0] for pair in measured[1:])
    rival = statistics.median(pair[1] for pair in measured[1:])
    return [Row("translate", mine, "pods/s", "Flask + gunicorn hello", rival, ">=", 1.8)]
