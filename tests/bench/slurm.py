"""Pods through a real Slurm: how fast they are taken, seen to end, and run, and what that costs it.

The rival is what a user would do by hand on the same login node: a loop of sbatch, and a batch
script with nothing but ``apptainer exec``. While submissions are counted, the partition starts
nothing: all nodes of the site are this one machine. A state counts as seen when /status shows it;
when the container ended is taken from the records of its job.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from submitter.backends.base import JobRef
from submitter.backends.slurm.backend import SlurmBackend
from submitter.config.settings import Pool
from tests.bench import apptainer
from tests.bench.rows import Row
from tests.bench.site_pods import (
    counted,
    create_all,
    ended_at,
    noting,
    programs_of_a_poll,
    watching,
)
from tests.sites.slurm.site import USER, SlurmSite, running, until
from tests.sites.slurm.system import TIMING, SlurmSystem, pod_of, system_at

PODS = 1000
BY_HAND = 300
SEEN = 200  # ends of containers that are waited for
QUEUED = 10_000
BEHIND, KILLED = 50, 5  # pods that are run behind those
HELD = (  # four at once, as many as the controller takes
    "for part in 0 1 2 3; do (for ((i = part; i < {count}; i += 4)); do"
    " sbatch --hold --parsable -o /dev/null -J held-$i --wrap true || exit 1; done) & done; wait"
)
LOOP = (
    "start=${{EPOCHREALTIME/./}}; for ((i = 0; i < {count}; i++)); do"
    " sbatch --parsable -n 1 --mem=64M -o /dev/null --wrap true >/dev/null || exit 1; done;"
    " echo $((${{EPOCHREALTIME/./}} - start))"
)


def run() -> list[Row]:
    """All rows, at one site."""
    with (
        tempfile.TemporaryDirectory(prefix="interlink-bench-") as name,
        running(Path(name) / "site") as site,
    ):
        rival = by_hand(site)
        with system_at(site, Path(name) / "system") as system:
            mine, delay = taken_and_seen(system)
        site.restore()
        overhead = of_one_job(site)
        queries = asked_per_poll(site)
        behind = behind_a_long_queue(site, Path(name) / "long")
    return [
        Row("slurm-create", mine, "pods/s", "a loop of sbatch", rival, ">=", 0.8),
        Row("slurm-state-seen", delay, "s after its end", "limit", 2, "<=", 1),
        overhead,
        Row("slurm-queries", queries, "per poll of 10,000 jobs", "limit", 1, "<=", 1),
        *behind,
    ]


def by_hand(site: SlurmSite) -> float:
    """Jobs per second."""
    with nothing_starts(site):
        microseconds = int(site.login("bash", "-c", LOOP.format(count=BY_HAND)))
        site.admin("scancel", "-u", USER)
    site.restore()
    return BY_HAND / microseconds * 1e6


@contextmanager
def nothing_starts(site: SlurmSite) -> Iterator[None]:
    """Jobs are queued, and wait."""
    site.admin("scontrol", "update", "partitionname=main", "state=down")
    try:
        yield
    finally:
        site.admin("scontrol", "update", "partitionname=main", "state=up")


# --- creates and states ---------------------------------------------------------------------------


def taken_and_seen(system: SlurmSystem) -> tuple[float, float]:
    """Creates per second, and the median time from a container's end to its state at /status."""
    requests = [pod_of("true") for _ in range(PODS)]
    pods = {request["pod"]["metadata"]["uid"]: request["pod"] for request in requests}
    with watching(system, pods) as seen:
        with nothing_starts(system.slurm):
            rate = create_all(system, requests)
        until(lambda: len(seen) >= SEEN, 300, f"{SEEN} pods have ended")
    delays = [at - ended_at(system, pods[uid]) for uid, at in list(seen.items())]
    return rate, statistics.median(delays)


# --- one job --------------------------------------------------------------------------------------


def of_one_job(site: SlurmSite) -> Row:
    """The script of a pod inside a job, against the bare command inside the same job."""
    pair = apptainer.PAIRS[0]
    folder = site.home / "overhead"
    apptainer.prepare(pair, folder)
    program = folder / "measure.sh"
    program.write_text(apptainer.MEASURE)
    program.chmod(0o755)
    job = site.submit(f"bash {program} {folder} {' '.join(pair.bare)}")
    site.until(job, "COMPLETED", seconds=300)
    return apptainer.row("slurm-overhead", pair, site.output(job))


# --- a long queue ---------------------------------------------------------------------------------


def asked_per_poll(site: SlurmSite) -> float:
    """How many of Slurm's programs one look at all jobs of the queue starts."""
    asked = site.home / "asked-per-poll"
    prefix = [*site.command("login", ["env", "SLURM_TIME_FORMAT=%s"], USER), *noting(asked)]
    options = {"prefix": prefix, "user": USER}
    slurm = SlurmBackend(Pool(name="long", directory=str(site.home / "long"), options=options))
    slurm.poll([])  # asks once how Slurm is set up
    site.run("login", ["bash", "-c", HELD.format(count=QUEUED)], USER, 600)
    told = site.login("squeue", "-h", "-u", USER, "-o", "%i %j").splitlines()
    refs = [JobRef(name, number, "") for number, name in map(str.split, told)]
    if len(refs) != QUEUED:
        raise RuntimeError(f"{len(refs)} jobs are in the queue, not {QUEUED}")
    return programs_of_a_poll(slurm, refs, asked)


# --- behind a long queue --------------------------------------------------------------------------


def behind_a_long_queue(site: SlurmSite, folder: Path) -> list[Row]:
    """With the 10,000 jobs still there: a submitter's questions, and how late ends are seen.

    Half of the pods end by themselves; the jobs of the others are killed with all that could
    have left a word, so that only the accounts tell how they ended.
    """
    asked = site.home / "asked"
    with system_at(site, folder, pool={"options": {"prefix": noting(asked)}}) as system:
        requests = [pod_of("sleep 2") for _ in range(BEHIND)]
        pods = {request["pod"]["metadata"]["uid"]: request["pod"] for request in requests}
        begin = time.monotonic()
        before = counted(asked)
        with watching(system, pods) as seen:
            create_all(system, requests)
            until(lambda: len(seen) == BEHIND, 300, f"{BEHIND} pods have ended")
            delays = [at - ended_at(system, pods[uid]) for uid, at in seen.items()]
            killed = [system.run("sleep 1000") for _ in range(KILLED)]
            for pod in killed:
                number = system.until_running(pod)
                site.admin("scancel", "--full", "--signal=KILL", number)
            for pod in killed:
                system.ended(pod, 120)
        intervals = (time.monotonic() - begin) / TIMING["poll_s"]
        count = {name: n - before.get(name, 0) for name, n in counted(asked).items()}
    looks, accounts = count["squeue"], count.get("sacct", 0)
    if not accounts:
        raise RuntimeError("the accounts were not asked at all")
    return [
        Row(
            "slurm-state-behind", statistics.median(delays), "s after its end", "limit", 2, "<=", 1
        ),
        Row("slurm-looks", looks / intervals, "squeue per interval", "limit", 1, "<=", 1),
        Row("slurm-accounts", accounts / looks, "sacct per look", "limit", 1, "<=", 1),
    ]
