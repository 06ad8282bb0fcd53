"""A hello pod on a podman host, from its create to its end, against a bare ``podman run``.

Both sides run in turns on the same host with the same image and network; the median of each counts.
A pod's time is from the message at the submitter to the end that its script has recorded. That is
before podman has cleaned up after the container, which ``podman run`` does before it ends. Nobody
asks how it is doing meanwhile: its end is heard, as a plugin hears it; and the other side's turn
comes when all is over that the submitter does after it.

``podman-calls``: 1,000 jobs run on the host under a submitter that is killed and started again, and
a program in podman's place notes each call before it becomes podman. The jobs and their scripts are
real, and so are the containers of the first 20; those of the others only count as running: there,
"podman run" becomes a sleep, as podman takes some 16 MB of memory for each. Calls at the start of a
job are not counted; those of its script while it runs are.
"""

from __future__ import annotations

import signal
import statistics
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from templates.job.status import ENDED
from templates.site.build_config import BuildConfig, PodmanRuntime, Runtime
from tests.bench.rows import Row
from tests.sites.podman.host import BASH, CONFIG, SCRIPT, AtTheHost, PodmanHost, job_of, running
from tests.support.nats_server import NatsServer
from tests.unit.submitter.rig import Centre, eventually

FEW, MANY = 20, 1000
MEASURED_S = 60
INTERVAL_S = 1  # at which the submitter looks at its jobs
# In podman's place: notes what is asked, and becomes it; without the file "real", but for "run".
NOTING = """#!/bin/bash
echo "$1" >>FOLDER/calls
[ -e FOLDER/real ] || [ "$1" != run ] || exec sleep 1000000
exec podman "$@"
"""
ROUNDS = 20
WARM_UP = 2
BARE = ("podman", "run", "--rm", "--network=pasta", BASH, "bash", "-c", "exit 0")
MEASURE = 't0=${EPOCHREALTIME/./}; "$@" >/dev/null 2>&1 || exit; echo $((${EPOCHREALTIME/./} - t0))'


def ours(centre: Centre, pool: Path) -> float:
    """Seconds from a create to the end of the job."""
    job = job_of()
    begin = time.time()
    centre.create(job)
    eventually(lambda: ends(centre, job.name), 60)
    eventually(lambda: not (pool / "running" / job.name).exists(), 60)
    return ends(centre, job.name)[-1] / 1000 - begin


def ends(centre: Centre, job: str) -> list[int]:
    """When it has ended, as its site has said."""
    return [one.finished_ms for one in centre.heard.get(job, ()) if one.phase == ENDED]


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
        rounds = range(ROUNDS + WARM_UP)
        pairs = [(ours(centre, submitter.directory), theirs(host)) for _ in rounds][WARM_UP:]
    finally:
        submitter.stop()
        centre.close()
        nats.stop()
    medians = [statistics.median(side) for side in zip(*pairs)]
    return Row("podman: a hello pod", medians[0], "s", "podman run", medians[1], "<=", 1.5)


def calls_of_many(host: PodmanHost, folder: Path) -> Row:
    """Per interval, while 1,000 jobs run."""
    nats = NatsServer(folder / "nats").start()
    site, centre = folder / "many", Centre(nats)
    site.mkdir()
    program, real, calls = (site / name for name in ("podman", "real", "calls"))
    program.write_text(NOTING.replace("FOLDER", str(site)))
    program.chmod(0o755)
    real.touch()
    calls.touch()
    host.own(site)
    build = {"runtime": {"name": "podman", "executable": str(program)}}
    options = {"cpu": MANY, "memory": "1000Gi", "pods": MANY}
    submitter = AtTheHost(nats, site, host, build=build, options=options).until_ready(centre)
    config = replace(CONFIG, runtime=Runtime("podman", str(program)), podman=PodmanRuntime())
    try:
        start_many(centre, config, FEW, FEW)
        real.unlink()
        start_many(centre, config, MANY - FEW, MANY)
        begun = len(calls.read_text().splitlines())
        submitter.stop(signal.SIGKILL)
        submitter.until_ready(centre)
        begin = time.monotonic()
        time.sleep(MEASURED_S)
        made = len(calls.read_text().splitlines()) - begun
        passed = time.monotonic() - begin
        if begun < MANY:
            raise RuntimeError(f"{begun} calls were noted for {MANY} jobs")
    finally:
        submitter.stop(signal.SIGKILL)
        centre.close()
        nats.stop()
    per_interval = made / passed * INTERVAL_S
    return Row("podman-calls", per_interval, f"per interval, {MANY} pods", "limit", 1, "<=", 1)


def start_many(centre: Centre, config: BuildConfig, count: int, all_of_them: int) -> None:
    """So many jobs more, until as many run as there are."""
    for _ in range(count):
        centre.insist(job_of("sleep 1000000", config=config))

    def running_ones() -> int:
        states = centre.query(everything=True).states
        return sum(one.containers[0].state.state == "running" for one in states)

    eventually(lambda: running_ones() == all_of_them, 1800)


def run() -> list[Row]:
    """Both rows, on one host."""
    subprocess.run([str(SCRIPT), "build"], check=True)
    with tempfile.TemporaryDirectory(prefix="interlink-bench-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "nats").mkdir()
        with running(folder) as host:
            return [measured(host, folder), calls_of_many(host, folder)]
