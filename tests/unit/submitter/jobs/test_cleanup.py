"""What crashes and oblivion have left is removed; what is young, alive or asked for is not."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from submitter.jobs.cleanup import LEFTOVER_AFTER_S, Janitor
from submitter.jobs.context import PoolContext
from submitter.jobs.table import StoredJob
from templates.protocol.messages import Delete
from tests.unit.submitter.conftest import Start
from tests.unit.submitter.fakes import site_of
from tests.unit.submitter.rig import Centre, eventually, job_of

FINAL = b"{}"


def made(path: Path, age_s: float) -> Path:
    """A file that was changed so long ago."""
    path.write_text("x")
    at = time.time() - age_s
    os.utime(path, (at, at))
    return path


def tidy(site: PoolContext) -> None:
    asyncio.run(Janitor(site).step())


def test_half_written_things_go_when_they_are_old(tmp_path: Path) -> None:
    site = site_of(tmp_path)
    old, young = LEFTOVER_AFTER_S + 10, LEFTOVER_AFTER_S - 100
    gone = made(tmp_path / "incoming" / "draft", old)
    folder = tmp_path / "incoming" / "job.123"
    folder.mkdir()
    (folder / "job.sh").write_text("x")
    os.utime(folder, (time.time() - old,) * 2)
    kept = made(tmp_path / "incoming" / "being-written", young)
    target = made(tmp_path / "elsewhere", old)
    link = tmp_path / "incoming" / "link"
    link.symlink_to(target)
    os.utime(link, (time.time() - old,) * 2, follow_symlinks=False)
    tidy(site)
    assert not gone.exists() and not folder.exists() and not link.is_symlink()
    assert kept.exists() and target.exists()


def test_in_the_spool_only_what_is_no_record_goes(tmp_path: Path) -> None:
    site = site_of(tmp_path)
    job = job_of()
    record = made(tmp_path / "spool" / f"{job.name}.1700000000000.job.1", LEFTOVER_AFTER_S + 10)
    noise = made(tmp_path / "spool" / ".tmp-1", LEFTOVER_AFTER_S + 10)
    tidy(site)
    assert not noise.exists()
    assert record.exists(), "a submitter that was away for long still wants it"


def test_a_tombstone_lasts_as_long_as_its_job_and_then_a_while(tmp_path: Path) -> None:
    site = site_of(tmp_path)
    keep_s = site.pool.timing.keep_deleted_s
    there, gone, lately = (job_of() for _ in range(3))
    site.journal.store([there])
    site.journal.bury([Delete(job.name, None) for job in (there, gone, lately)])
    for job, age in ((there, keep_s + 10), (gone, keep_s + 10), (lately, keep_s - 100)):
        at = time.time() - age
        os.utime(tmp_path / "deleted" / job.name, (at, at))
    tidy(site)
    assert sorted(os.listdir(tmp_path / "deleted")) == sorted([there.name, lately.name])


def test_a_finished_job_that_nobody_deletes_goes_in_the_end(tmp_path: Path) -> None:
    site = site_of(tmp_path)
    old = time.time() - site.pool.timing.keep_orphans_s - 10
    names = {}
    for what, final, ended_s in (
        ("forgotten", FINAL, old),
        ("lately", FINAL, time.time() - 100),
        ("running", None, 0.0),
    ):
        job = job_of()
        site.journal.store([job])
        slim = None if final else job
        site.table.add(StoredJob(job.name, slim, final=final, ended_s=ended_s))
        names[what] = job.name
    tidy(site)
    assert os.listdir(tmp_path / "deleted") == [names["forgotten"]]


def test_a_submitter_removes_what_was_forgotten(start: Start, centre: Centre) -> None:
    first = start(backend="host")
    job = job_of()
    centre.create(job)
    centre.ended(job.name)
    directory = first.directory / "jobs" / job.name
    final = directory / "final"
    eventually(final.exists)
    assert first.stop() == 0
    at = time.time() - 3600
    os.utime(final, (at, at))
    start(backend="host", timing={"keep_orphans_s": 60})
    centre.until_gone(job.name)
    eventually(lambda: not directory.exists())
