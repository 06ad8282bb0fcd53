"""Whoever makes a chain is killed with all that it has started, as Ctrl-C does it to tests."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable

from tests.e2e.traces import processes_of, traces, with_children
from tests.support.kueue_bed import NEW, SCRIPT, KueueBed, part, until


def test_a_chain_that_has_not_come_up_yet_leaves_nothing() -> None:
    name = f"cut-off-{os.getpid()}"
    bed = KueueBed(name, NEW, part("kubernetes").parent / "beds" / name / "kubeconfig")
    reading, writing = os.pipe()
    command = [str(SCRIPT), "up", "--sites", "host", "--name", name, "--tied"]
    up = subprocess.Popen(command, stdin=reading, stdout=subprocess.DEVNULL)
    os.close(reading)
    try:
        until(lambda: bed.kubeconfig.exists() and bed.site("host").file.exists(), what="a site")
        there = processes_of(bed)
        assert len(there) > 5 and up.poll() is None
        kill_with_children(up.pid)
        up.wait()
    finally:
        os.close(writing)
    try:
        until(lambda: not traces(bed, there), what=f"the end of {traces(bed, there)}")
    finally:
        subprocess.run([str(SCRIPT), "down", "--name", name], check=True, stdout=sys.stderr)


def kill_with_children(pid: int) -> None:
    """All of them stand still first, so that none begins another one meanwhile."""
    stopped: set[int] = set()
    while more := with_children([pid]).keys() - stopped:
        send(more, signal.SIGSTOP)
        stopped |= more
    send(stopped, signal.SIGKILL)


def send(pids: Iterable[int], word: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, word)
