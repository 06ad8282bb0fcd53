"""A script that was told to end, where the batch system may start it again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from submitter.backends.base import Observation
from submitter.jobs.context import PoolContext
from submitter.jobs.poll import Polling
from submitter.jobs.scanner import load
from submitter.jobs.table import Table, TrackedJob
from templates.job.records import Record, parse_lines
from templates.job.status import ENDED, QUEUED, STARTED
from templates.protocol.messages import Delete
from tests.unit.submitter.fakes import moody, site_of
from tests.unit.submitter.rig import job_of, placed

WORDS = "the batch system ended the job on n1"
RUN = 1795015701725


@pytest.fixture
def site(tmp_path: Path) -> PoolContext:
    return site_of(tmp_path / "pool")._replace(table=Table(starts_again=True))


@pytest.fixture
def entry(site: PoolContext) -> TrackedJob:
    """A job that was told to end, and has."""
    job = job_of()
    placed(site.journal, job)
    site.journal.write(f"{site.journal.of(job.name)}/native", b"17")
    found = load(site.journal, job.name)
    assert found is not None
    made = site.table.add(found)
    assert made is not None
    made.add_records(records(job.name, RUN))
    return made


def records(job: str, run: int) -> list[Record]:
    words = WORDS.encode().hex()
    lines = (
        ("job", 1, "state=started node=n1"),
        ("c.main", 1, "kind=main state=running restarts=0 started=5 begun=1 ready=1"),
        ("c.main", 2, "kind=main state=terminated exit=143 reason=Error started=5 finished=9"
         f" restarts=0 message={words}"),
        ("job", 2, f"state=finished exit=143 message={words} told=1"),
    )  # fmt: skip
    text = "".join(
        f"interlink1 job={job} run={run} stream={stream} n={n} at={run + n} {what} ;\n"
        for stream, n, what in lines
    )
    return parse_lines(text.encode())


def ask(site: PoolContext, entry: TrackedJob, observation: Observation) -> None:
    moody(site).observations = {entry.name: observation}
    asyncio.run(Polling(site).step())


def test_the_batch_system_says_why_it_was_told(site: PoolContext, entry: TrackedJob) -> None:
    ask(site, entry, Observation(STARTED))
    assert (entry.has_ended, entry.status().phase) == (False, STARTED)
    moody(site).settle_s = 3600.0  # all that it had to say is there
    words = "Slurm: TIMEOUT: it reached its time limit"
    ask(site, entry, Observation(ENDED, "TimeLimit", words, exit_code=143))
    status = entry.status()
    assert (status.phase, status.exit_code) == (ENDED, 143)
    assert status.message == f"TimeLimit: {words}: {WORDS}"
    end = status.containers[0].state.end
    assert end is not None
    assert end.message == f"TimeLimit: {words}: {WORDS}"


def test_it_waits_again(site: PoolContext, entry: TrackedJob) -> None:
    before = entry.status().version
    ask(site, entry, Observation(QUEUED, "BeginTime", "later", requeued=True))
    status = entry.status()
    assert (status.phase, status.reason, entry.has_ended) == (QUEUED, "BeginTime", False)
    assert status.version > before
    entry.add_records(records(entry.name, RUN + 5000)[:2])
    assert entry.status().phase == STARTED
    assert entry.status().version > status.version


def test_a_deleted_pod_does_not_wait_for_words(site: PoolContext, entry: TrackedJob) -> None:
    site.journal.bury([Delete(entry.name, 0)])
    tombstone = site.journal.tombstone(entry.name)
    assert tombstone is not None
    site.table.mark_deleted(entry, tombstone)
    assert entry.has_ended
    assert entry.status().message == WORDS


def test_where_nothing_is_started_again_its_word_is_the_last(
    site: PoolContext, entry: TrackedJob
) -> None:
    entry.update(entry.view._replace(starts_again=False))
    assert (entry.has_ended, entry.status().phase) == (True, ENDED)
