"""Ten thousand finished jobs at one site: memory, cost at rest, and a plugin that starts anew.

One real job is run; its directory is copied under other names, as if all had been real.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from tests.bench.logs import memory_mb
from tests.bench.rows import Row
from tests.support.system import POOL, System, job_of, running

JOBS = 10_000
REST_S = 20
TICKS = os.sysconf("SC_CLK_TCK")


def run() -> list[Row]:
    """Measure."""
    with (
        tempfile.TemporaryDirectory(prefix="interlink-bench-") as name,
        running(Path(name)) as system,
    ):
        pod = system.run("exit 3")
        system.ended(pod)
        system.kill("submitter0", signal.SIGTERM)
        pods = multiply(system, pod)
        system.start("submitter0")
        await_all(system, pods)
        system.kill("plugin")
        start = time.monotonic()
        system.start("plugin")
        await_all(system, pods)
        restart_s = time.monotonic() - start
        time.sleep(10)  # what the restart has stirred up settles
        plugin, submitter = cpu_share(system)
        memory = {name: memory_mb(system, name) for name in ("plugin", "submitter0")}
    return [
        Row("memory-plugin", memory["plugin"], "MB", "limit", 150, "<=", 1),
        Row("memory-submitter", memory["submitter0"], "MB", "limit", 100, "<=", 1),
        Row("plugin-restart", restart_s, "s", "limit", 5, "<=", 1),
        Row("rest-plugin", plugin, "% of a core", "limit", 2, "<=", 1),
        Row("rest-submitter", submitter, "% of a core", "limit", 2, "<=", 1),
    ]


def multiply(system: System, pod: dict[str, Any]) -> list[dict[str, Any]]:
    """The job's directory ten thousand times, each under the name of a pod of its own."""
    source, old = system.directory(pod), pod["metadata"]["uid"]
    pods = []
    for _ in range(JOBS):
        new = str(uuid.uuid4())
        copy = {**pod, "metadata": {**pod["metadata"], "uid": new}}
        target = system.site / POOL / "jobs" / job_of(copy)
        shutil.copytree(source, target)
        for file in target.rglob("*"):
            if file.is_file() and old.encode() in (content := file.read_bytes()):
                file.write_bytes(content.replace(old.encode(), new.encode()))
        pods.append(copy)
    return pods


def await_all(system: System, pods: list[dict[str, Any]]) -> None:
    """Until the plugin knows the end of every one of them."""

    def knows() -> bool:
        try:
            found = system.plugin.status(pods)
        except OSError:
            return False
        codes = [
            c["state"].get("terminated", {}).get("exitCode") for s in found for c in s["containers"]
        ]
        return codes == [3] * len(pods)

    system.until(knows, "all jobs are known", 120)


def cpu_share(system: System) -> tuple[float, float]:
    """Percent of a core that plugin worker and submitter use when nobody asks them anything."""
    pids = (system.processes["plugin"].children()[0], system.processes["submitter0"].pid)
    before = [ticks(pid) for pid in pids]
    time.sleep(REST_S)
    shares = [(ticks(pid) - was) / TICKS / REST_S * 100 for pid, was in zip(pids, before)]
    return shares[0], shares[1]


def ticks(pid: int) -> int:
    """The CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
