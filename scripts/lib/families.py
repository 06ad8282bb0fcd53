"""Processes with all that descends from them, as /proc shows them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path


def kill_families(folder: Path, seconds: float) -> None:
    """End each process whose command names what lies in a folder, and all that it has started."""
    end = time.monotonic() + seconds
    while (pids := _families(f"{folder}/".encode())) and time.monotonic() < end:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _families(word: bytes) -> set[int]:
    parents: dict[int, int] = {}
    found: set[int] = set()
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            pid = int(entry)
            state, parent = _read(pid, "stat").rpartition(b")")[2].split()[:2]
            if state != b"Z" and pid != os.getpid():
                parents[pid] = int(parent)
                if word in _read(pid, "cmdline"):
                    found.add(pid)
    more = found
    while more:
        more = {pid for pid, parent in parents.items() if parent in more} - found
        found |= more
    return found


def _read(pid: int, name: str) -> bytes:
    return Path(f"/proc/{pid}/{name}").read_bytes()
