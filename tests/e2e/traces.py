"""What a bed with sites is made of on this machine, so that what is left of it can be told."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from scripts.lib.slurm.machines import all_processes, began
from tests.support.kueue_bed import KueueBed
from tests.support.processes import cables, control_groups

Processes = dict[int, int]  # their numbers, and when they began


def processes_of(bed: KueueBed) -> Processes:
    """All whose command, or that of one above them, names the bed's folder."""
    return with_children(pid for pid in all_processes() if _names(pid, bed))


def with_children(pids: Iterable[int]) -> Processes:
    """These, and all that they have started, and those."""
    parents = {pid: _parent(pid) for pid in all_processes()}
    ours, size = {*pids}, 0
    while len(ours) > size:
        size = len(ours)
        ours |= {pid for pid, parent in parents.items() if parent in ours}
    return {pid: began(pid) for pid in ours}


def traces(bed: KueueBed, known: Processes) -> list[str]:
    """What there is of the bed: processes, cables, mounts, control groups, files."""
    folder = bed.kubeconfig.parent
    running = {pid for pid, at in known.items() if at and began(pid) == at}
    running |= {pid for pid in all_processes() if _names(pid, bed)}
    found = [f"process {pid}" for pid in sorted(running)]
    found += [f"cable {name}" for name in cables(bed.name)]
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    found += [f"mount {line}" for line in mounts if f"{folder}/" in line or f"{folder} " in line]
    found += [f"group {path}" for path in control_groups(f"interlink-bed-{bed.name}")]
    found += [f"file {path}" for path in folder.parent.glob(f"{folder.name}*")]
    return found


def _names(pid: int, bed: KueueBed) -> bool:
    with contextlib.suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        return str(bed.kubeconfig.parent).encode() in command
    return False


def _parent(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0
