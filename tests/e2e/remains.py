"""What is left at the sites of pods that are gone."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path

from scripts.lib.slurm.machines import all_processes
from tests.support.kueue_bed import KueueBed

UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

# What names the jobs in the queue, by the kind of the site.
QUEUES = {
    "slurm": ("squeue", "--noheader", "--format=%j"),
    "htcondor": ("condor_q", "-allusers", "-af", "InterlinkJob"),
    "podman": ("podman", "ps", "--all", "--format", "{{.Names}}"),
}
CLUSTER = "kubernetes"  # the kind of site that has one


def remains(bed: KueueBed, sites: Collection[str], uids: Collection[str]) -> list[str]:
    """Directories, queued jobs and processes of these pods."""
    wanted, found = set(uids), list(_processes())
    for name in sites:
        site = bed.site(name)
        jobs = site.home / "pool" / "jobs"
        found += [f"{name}: directory {path.name}" for path in jobs.iterdir()]
        if queue := QUEUES.get(name.partition("-")[0]):
            found += [f"{name}: queue {job}" for job in site.login(*queue).split()]
        if name.partition("-")[0] == CLUSTER:
            found += [f"{name}: queue {one}" for one in _objects(bed.cluster_of(name))]
    return sorted(line for line in found if wanted.intersection(UID.findall(line)))


def _objects(cluster: KueueBed) -> Iterator[str]:
    for kind in ("pods", "secrets", "configmaps"):
        for item in cluster.get(kind, namespace="interlink")["items"]:
            yield item["metadata"]["name"]


def _processes() -> Iterator[str]:
    for pid in all_processes():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        yield f"process {pid} {command.decode(errors='replace')}"
