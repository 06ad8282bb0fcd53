"""A hello pod on a podman host, from its create to its end, against a bare ``podman run``.

Both sides run in turns on the same host with the same image and network; the median of each counts.
A pod's time is from the message at the submitter to the end that its script has recorded.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from tests.bench.rows import Row
from tests.nats_server import NatsServer
from tests.podman_host import BASH, SCRIPT, AtTheHost, PodmanHost, job_of, running
from tests.submitter.rig import Centre

ROUNDS = 20
WARM_UP = 2
BARE = ("podman", "run", "--rm", "--network=pasta", BASH, "bash", "-c", "exit 0")
MEASURE = 't0=${EPOCHREALTIME/./}; "$@" >/dev/null 2>&1 || exit; echo $((${EPOCHREALTIME/./} - t0))'


def ours(centre: Centre) -> float:
    """Seconds from a create to the end of the job."""
    job = job_of()
    begin = time.time()
    centre.create(job)
    status = centre.ended(job.name, 60)
    return status.finished_ms / 1000 - begin


def theirs(host: PodmanHost) -> float:
    return int(host.run("bash", "-c", MEASURE, "measure", *BARE)) / 1e6


def measured(host: PodmanHost, folder: Path) -> Row:
    nats = NatsServer(folder / "nats").start()
    pool = folder / "site"
    pool.mkdir()
    host.own(pool)
    centre = Centre(nats)
    submitter = AtTheHost(nats, pool, host).until_ready(centre)
    try:
        pairs = [(ours(centre), theirs(host)) for _ in range(ROUNDS + WARM_UP)][WARM_UP:]
    finally:
        submitter.stop()
        centre.close()
        nats.stop()
    medians = [statistics.median(side) for side in zip(*pairs)]
    return Row("podman: a hello pod", medians[0], "s", "podman run", medians[1], "<=", 1.5)


def run() -> list[Row]:
    """One row."""
    subprocess.run([str(SCRIPT), "build"], check=True)
    with tempfile.TemporaryDirectory(prefix="interlink-bench-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "nats").mkdir()
        with running(folder) as host:
            return [measured(host, folder)]
