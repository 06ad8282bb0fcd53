"""Pods of a system at a real site: created side by side, watched, and what that asks of it."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scripts.lib.interlink import Plugin
from scripts.lib.slurm.machines import until
from submitter.backends.base import Backend, JobRef
from tests.bench.asking import CLIENTS
from tests.support.site_system import SiteSystem
from tests.support.system import POOL, job_of


def create_all(system: SiteSystem, requests: list[dict[str, Any]]) -> float:
    """Create pods by several clients at once: how many per second."""
    waiting, lock = list(requests), threading.Lock()

    def create() -> None:
        with Plugin("127.0.0.1", system.port) as plugin:
            while True:
                with lock:
                    if not waiting:
                        return
                    request = waiting.pop()
                plugin.create(request)

    threads = [threading.Thread(target=create) for _ in range(CLIENTS)]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(requests) / (time.monotonic() - start)


@contextmanager
def watching(system: SiteSystem, pods: dict[str, Any]) -> Iterator[dict[str, float]]:
    """When each pod was first seen ended; all of them are asked for again and again."""
    seen: dict[str, float] = {}
    over = threading.Event()

    def watch() -> None:
        with Plugin("127.0.0.1", system.port) as plugin:
            while not over.wait(0.1):
                left = [pod for uid, pod in pods.items() if uid not in seen]
                for status in plugin.status(left) if left else ():
                    if "terminated" in status["containers"][0]["state"]:
                        seen.setdefault(status["UID"], time.time())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def ended_at(system: SiteSystem, pod: dict[str, Any]) -> float:
    """When its container ended, by the clock of the node, which is ours."""
    final = system.site / POOL / "jobs" / job_of(pod) / "final"
    until(final.exists, 60, f"{final} is there")
    (container,) = json.loads(final.read_bytes())["containers"]
    return float(container["end"]["finished_ms"]) / 1000


def noting(file: Path) -> list[str]:
    """What to put before a batch system's programs so that their names are noted in a file."""
    file.touch()
    file.chmod(0o666)  # whoever starts them writes into it
    wrapper = file.with_name(f"{file.name}-noting")
    wrapper.write_text(f'#!/bin/bash\necho "$1" >>{file}\nexec "$@"\n')
    wrapper.chmod(0o755)
    return [str(wrapper)]


def programs_of_a_poll(backend: Backend, refs: list[JobRef], asked: Path) -> int:
    """How many programs one look at all these jobs starts, each of which is noted in a file."""
    before = sum(counted(asked).values())
    observations = backend.poll(refs)
    if len(observations) != len(refs):
        raise RuntimeError(f"{len(observations)} of {len(refs)} jobs were seen")
    return sum(counted(asked).values()) - before


def counted(file: Path) -> dict[str, int]:
    """How often each was started."""
    return Counter(file.read_text().split())
