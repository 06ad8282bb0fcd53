"""What is left of a job or a bed on this machine, as seen from outside of any container.

What is others' comes and goes while one looks.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import signal
import time
from pathlib import Path
from typing import Any

MARK = "INTERLINK_TEST_MARK"


def marked(folder: Path, container: dict[str, Any]) -> dict[str, Any]:
    """The container with a variable in its environment by which its processes are found."""
    return {**container, "env": [*container.get("env", []), {"name": MARK, "value": folder.name}]}


def left(folder: Path, whole_path: bool = False) -> list[str]:
    """Processes of the jobs in a folder: their script, whatever names it, whatever is marked.

    The folder is known by its name, because a container sees it in another place; by its path where
    its name is not this test's alone: pytest has the same names in another worker or another run.
    """
    name = str(folder) if whole_path else folder.name
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            told = _read(entry / "cmdline") + b"\0" + _read(entry / "environ")
            # The tests' own way into the site root ends with the script. Podman's own processes are
            # the user's rather than the job's; what runs in its containers is marked.
            ours = b"SITE_BIND=" in told or told.startswith(b"/usr/bin/podman\0")
            if name.encode() in told and not ours:
                found.append(f"{entry.name} {_read(entry / 'cmdline')!r}")
    return found


def assert_none_left(folder: Path, seconds: float = 20) -> None:
    """What has been killed is gone as soon as the kernel gets round to it."""
    end = time.monotonic() + seconds
    while left(folder):
        assert time.monotonic() < end, left(folder)
        time.sleep(0.05)


def kill_left(folder: Path, whole_path: bool = False, seconds: float = 20) -> None:
    """End what a test has left on purpose, and what that has started meanwhile."""
    end = time.monotonic() + seconds
    while lines := left(folder, whole_path):
        assert time.monotonic() < end, lines
        for line in lines:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(line.split()[0]), signal.SIGKILL)
        time.sleep(0.02)


def control_groups(pattern: str) -> list[str]:
    """Those whose own name is like this, wherever they are."""
    return [
        f"{above}/{name}"
        for above, names, _ in os.walk("/sys/fs/cgroup")
        for name in fnmatch.filter(names, pattern)
    ]


def cables(bed: str) -> list[str]:
    """The network interfaces here that lead to a bed or its sites."""
    words = f"interlink-bed-{bed} ".encode()
    aliases = Path("/sys/class/net").glob("*/ifalias")
    return [alias.parent.name for alias in aliases if _read(alias).startswith(words)]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
