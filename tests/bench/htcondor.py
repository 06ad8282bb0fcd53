"""Pods through a real HTCondor: how fast they are taken and seen to end, and what that asks of it.

The rival is a loop of condor_submit at the same access point. While submissions are counted, the
negotiator stands still: all machines of the pool are this one. A state counts as seen when /status
shows it; when HTCondor itself knew of a job's end is taken from its own records, in whole seconds.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from submitter.backends.base import JobRef
from submitter.backends.htcondor.backend import HTCondorBackend
from submitter.config.settings import Pool, Timing
from tests.bench.rows import Row
from tests.bench.site_pods import counted, create_all, noting, programs_of_a_poll, watching
from tests.sites.htcondor.site import USER, RunningSite, running, until
from tests.sites.htcondor.system import CondorSystem, system_at
from tests.support.site_system import TIMING
from tests.support.system import POOL, job_of, request_of

PODS = 500
BY_HAND = 200
SEEN = 200  # ends of containers that are waited for
QUEUED = 10_000
BEHIND, REMOVED = 50, 5  # pods that are run behind those
LONG = "long"  # the pool that they are of
LOOP = (
    "start=${{EPOCHREALTIME/./}}; for ((i = 0; i < {count}; i++)); do"
    " condor_submit -terse - <{file} >/dev/null || exit 1; done;"
    " echo $((${{EPOCHREALTIME/./}} - start))"
)
DESCRIPTION = """\
universe = vanilla
executable = /bin/true
transfer_executable = false
should_transfer_files = NO
request_cpus = 1
request_memory = 64
request_disk = 1024
"""
HELD = f"""\
{DESCRIPTION}hold = true
MY.InterlinkPool = "{LONG}"
MY.InterlinkJob = "held-$(ProcId)"
queue {QUEUED}
"""


def run() -> list[Row]:
    """All rows, at one site with a shared file system and one without."""
    with tempfile.TemporaryDirectory(prefix="interlink-bench-") as name:
        folder = Path(name)
        with running(folder / "site") as site:
            rival = by_hand(site)
            with system_at(site, folder / "system", pool={"timing": {}}) as system:
                mine, delay = taken_and_seen(system, PODS)
            site.restore()
            queries = asked_per_poll(site)
            behind = behind_a_long_queue(site, folder / "long")
        with running(folder / "apart", kind=["--not-shared"]) as site:
            pool = {"options": {"shared": False}, "timing": {}}
            with system_at(site, folder / "system-apart", pool=pool) as system:
                _, apart = taken_and_seen(system, SEEN)
    interval, limit = Timing().poll_s, ("<=", 1)
    late = "s after HTCondor knew"
    return [
        Row("htcondor-create", mine, "pods/s", "a loop of condor_submit", rival, ">=", 0.8),
        Row("htcondor-state-seen", delay, late, "an interval", interval, *limit),
        Row("htcondor-state-seen-apart", apart, late, "an interval", interval, *limit),
        Row("htcondor-queries", queries, "per poll of 10,000 jobs", "limit", 1, *limit),
        *behind,
    ]


def by_hand(site: RunningSite) -> float:
    """Jobs per second."""
    file = site.home / "true.sub"
    file.write_text(f"{DESCRIPTION}queue\n")
    with nothing_starts(site):
        loop = LOOP.format(count=BY_HAND, file=file)
        microseconds = int(site.login("bash", "-c", loop))
        site.login("condor_rm", "-all")
    site.restore()
    return BY_HAND / microseconds * 1e6


@contextmanager
def nothing_starts(site: RunningSite) -> Iterator[None]:
    """Jobs are queued, and wait."""
    site.freeze("condor_negotiator")
    try:
        yield
    finally:
        site.thaw("condor_negotiator")


# --- creates and states ---------------------------------------------------------------------------


def taken_and_seen(system: CondorSystem, count: int) -> tuple[float, float]:
    """Creates per second, and how late ends are seen at /status (median)."""
    requests = [request_of("true") for _ in range(count)]
    pods = {request["pod"]["metadata"]["uid"]: request["pod"] for request in requests}
    with watching(system, pods) as seen:
        with nothing_starts(system.condor):
            rate = create_all(system, requests)
        until(lambda: len(seen) >= SEEN, 600, f"{SEEN} pods have ended")
    return rate, statistics.median(delays(system, pods, dict(seen)))


def delays(system: CondorSystem, pods: dict[str, Any], seen: dict[str, float]) -> list[float]:
    """From HTCondor's own knowing until each was seen; it drops half a second on average."""
    constraint = f'InterlinkPool == "{POOL}" && JobStatus > 2'
    # A job that we know to be over is taken out of the queue, perhaps before HTCondor has noticed.
    at = "ifThenElse((CompletionDate ?: 0) > 0, CompletionDate, EnteredCurrentStatus)"
    asked = ("-constraint", constraint, "-af", "InterlinkJob", at)

    def known() -> dict[str, float]:
        programs = (("condor_history",), ("condor_q", "-allusers"))
        lines = [line for p in programs for line in system.condor.admin(*p, *asked).splitlines()]
        return {name: float(when) for name, when in map(str.split, lines)}

    names = {uid: job_of(pods[uid]) for uid in seen}
    found: dict[str, float] = {}

    def all_known() -> bool:
        found.update(known())
        return set(names.values()) <= set(found)

    until(all_known, 120, "HTCondor to know of them")
    return [at - found[names[uid]] - 0.5 for uid, at in seen.items()]


# --- a long queue ---------------------------------------------------------------------------------


def asked_per_poll(site: RunningSite) -> float:
    """How many of HTCondor's programs one look at all jobs of the queue starts."""
    asked = site.home / "asked-per-poll"
    prefix = [*site.command("login", [], USER), *noting(asked)]
    options = {"prefix": prefix, "export": ["HOME"]}
    condor = HTCondorBackend(Pool(name=LONG, directory=str(site.home / LONG), options=options))
    file = site.home / "held.sub"
    file.write_text(HELD)
    site.login("bash", "-c", f"condor_submit -terse - <{file}")
    told = site.login("condor_q", "-af", "InterlinkJob", "ClusterId", "ProcId").splitlines()
    refs = [JobRef(name, f"{job}.{proc}", "") for name, job, proc in map(str.split, told)]
    if len(refs) != QUEUED:
        raise RuntimeError(f"{len(refs)} jobs are in the queue, not {QUEUED}")
    return programs_of_a_poll(condor, refs, asked)


def behind_a_long_queue(site: RunningSite, folder: Path) -> list[Row]:
    """With the 10,000 jobs still there: a submitter's questions in each of its intervals.

    Some jobs are taken out of the queue with all that could have left a word.
    """
    asked = site.home / "asked"
    with system_at(site, folder, pool={"options": {"prefix": noting(asked)}}) as system:
        requests = [request_of("sleep 2") for _ in range(BEHIND)]
        begin, before = time.monotonic(), counted(asked)
        create_all(system, requests)
        for request in requests:
            system.ended(request["pod"], 300)
        removed = [system.run("sleep 1000") for _ in range(REMOVED)]
        for pod in removed:
            system.until(lambda pod=pod: "running" in str(system.status(pod)), "it runs", 120)
        ours = f'InterlinkPool == "{POOL}" && JobStatus isnt 4'
        for force in ([], ["-forcex"]):
            site.admin("condor_rm", *force, "-constraint", ours)
        for pod in removed:
            system.ended(pod, 120)
        intervals = (time.monotonic() - begin) / TIMING["poll_s"]
        count = {name: n - before.get(name, 0) for name, n in counted(asked).items()}
    looks, histories = count["condor_q"], count.get("condor_history", 0)
    if not histories:
        raise RuntimeError("the history was not asked at all")
    return [
        Row("htcondor-looks", looks / intervals, "condor_q per interval", "limit", 1, "<=", 1),
        Row("htcondor-history", histories / looks, "condor_history per look", "limit", 1, "<=", 1),
    ]
