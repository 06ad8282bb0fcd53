"""A log of 1 GB through getLogs, against a bare stream of the same chunks through the same NATS."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from templates.nats.connection import Link
from templates.nats.options import LinkSettings
from templates.nats.requests import LinkError
from tests.bench.rows import Row
from tests.support.system import System, running

SIZE = 1_000_000_000
CHUNK = 512 * 1024
ROUNDS = 2


def run() -> list[Row]:
    """Measure in turns; memory by the peaks of both programs."""
    with (
        tempfile.TemporaryDirectory(prefix="interlink-bench-") as name,
        running(Path(name)) as system,
    ):
        pod = system.run(f"yes 'a line of some log, neither short nor long' | head -c {SIZE}")
        system.ended(pod, 120)
        before = {name: memory_mb(system, name) for name in ("plugin", "submitter0")}
        ours, theirs = [], []
        for _ in range(ROUNDS):
            theirs.append(bare_stream(system))
            start = time.perf_counter()
            got = sum(map(len, system.plugin.logs(pod, "c0")))
            ours.append(got / (time.perf_counter() - start) / 1e6)
            if got != SIZE:
                raise RuntimeError(f"the log has {got} bytes instead of {SIZE}")
        grown = {name: memory_mb(system, name) - before[name] for name in before}
    return [
        Row("log-speed", max(ours), "MB/s", "bare NATS stream", max(theirs), ">=", 0.5),
        Row("log-memory-plugin", grown["plugin"], "MB grown", "limit", 50, "<=", 1),
        Row("log-memory-submitter", grown["submitter0"], "MB grown", "limit", 50, "<=", 1),
    ]


def memory_mb(system: System, name: str) -> float:
    """The most that a program (of gunicorn: its worker) ever had in memory."""
    process = system.processes[name]
    pids = process.children() if name == "plugin" else [process.pid]
    peaks = []
    for pid in pids:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        peaks.append(next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")))
    return max(peaks) / 1024


def bare_stream(system: System) -> float:
    """MB per second from one process to another, 4 MB asked for at a time."""
    url, ca = system.nats.websocket_url, system.nats.ca_file
    command = [sys.executable, "-P", "-m", "tests.bench.bare_stream", url, ca, str(CHUNK)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as sender:
        try:
            assert sender.stdout is not None
            sender.stdout.readline()  # it has subscribed
            return asyncio.run(_receive(LinkSettings((url,), ca_file=ca)))
        finally:
            sender.kill()


async def _receive(settings: LinkSettings) -> float:
    link = Link(settings, "bench")
    await link.start()
    try:
        if not await link.connected(10):
            raise RuntimeError(f"no connection to NATS: {link.error}")
        return await _measure(link)
    except LinkError as error:
        raise RuntimeError(f"the bare stream broke: {error}") from None
    finally:
        await link.stop()


async def _measure(link: Link) -> float:
    got, start = 0, time.perf_counter()
    async with link.stream() as (inbox, next_message):
        while got < SIZE:
            await link.publish_request("bench.stream", inbox, {"chunks": 8})
            for _ in range(8):
                got += len(await next_message(10))
    return got / (time.perf_counter() - start) / 1e6
