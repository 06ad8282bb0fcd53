"""What is new in a pool's directory: each thing once, and nothing is lost by trouble."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest

from submitter.jobs.context import PoolContext
from submitter.jobs.scanner import Scanner, load
from submitter.store import spool
from submitter.store.spool import Spool
from templates.protocol.messages import Delete
from tests.unit.submitter.fakes import site_of
from tests.unit.submitter.rig import accepted, job_of, placed


@pytest.fixture
def site(tmp_path: Path) -> PoolContext:
    return site_of(tmp_path / "pool")


def drop(site: PoolContext, job: str, number: int, run: int = 5) -> Path:
    line = f"interlink1 job={job} run={run} stream=job n={number} at=7 state=started node=x ;\n"
    path = Path(site.journal.spool, f"{job}.{run}.job.{number}")
    path.write_text(line)
    return path


def test_a_record_is_read_once_and_removed_later(
    site: PoolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of().name
    path, looker = drop(site, job, 1), Spool(site.journal.spool)
    assert [record.number for record in looker.read_new()] == [1]
    assert looker.read_new() == []
    drop(site, job, 2)
    assert [record.number for record in looker.read_new()] == [2]
    assert path.exists()
    monkeypatch.setattr(spool, "KEEP_S", 0.0)
    looker.read_new()
    assert os.listdir(site.journal.spool) == []
    assert looker.read_new() == []


def test_foreign_and_torn_files_do_no_harm(site: PoolContext) -> None:
    job = job_of().name
    folder = Path(site.journal.spool)
    (folder / "README").write_text("hello")
    (folder / f"{job}.5.job.1.tmp").write_text("interlink1 job=")
    (folder / f"{job}.5.job.2").write_bytes(b"interlink1 job=" + b"\xff" * 100)
    (folder / f"{job}.5.job.3").touch()
    assert Spool(site.journal.spool).read_new() == []
    assert (folder / "README").exists()


def test_trouble_loses_no_record(site: PoolContext, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of().name
    drop(site, job, 1)
    looker = Spool(site.journal.spool)
    with monkeypatch.context() as patched:
        trouble = OSError(errno.EIO, "the file system is away")
        patched.setattr(spool, "read", Mock(side_effect=trouble))
        with pytest.raises(OSError, match="away"):
            looker.read_new()
    assert [record.number for record in looker.read_new()] == [1]


def test_jobs_and_deletions_of_others_are_seen(site: PoolContext) -> None:
    scanner = Scanner(site.journal)
    first, second = job_of(), job_of()
    assert scanner.scan(frozenset()).found == []
    site.journal.store([first, second])
    sight = scanner.scan(frozenset())
    assert [found.name for found in sight.found] == [first.name, second.name]
    known = frozenset([first.name, second.name])
    for name in known:
        site.journal.unpack(name)
    assert scanner.scan(known).found == []
    site.journal.bury([Delete(first.name, 4)])
    assert scanner.scan(known).tombstones[first.name].grace_s == 4
    assert scanner.scan(known).tombstones == {}
    site.journal.remove(first.name)
    shutil.rmtree(site.journal.of(second.name))
    vanished = scanner.scan(known).vanished
    assert vanished[first.name] is not None
    assert vanished[second.name] is None


def test_an_unmounted_directory_is_trouble_and_no_news(site: PoolContext) -> None:
    scanner = Scanner(site.journal)
    job = job_of()
    site.journal.store([job])
    known = frozenset([job.name])
    scanner.scan(known)
    os.rename(site.journal.jobs, f"{site.journal.jobs}.away")
    with pytest.raises(OSError, match="jobs"):
        scanner.scan(known)
    os.rename(f"{site.journal.jobs}.away", site.journal.jobs)
    assert scanner.scan(known).vanished == {}


def test_what_was_found_before_trouble_is_found_again(site: PoolContext) -> None:
    scanner = Scanner(site.journal)
    job = job_of()
    site.journal.store([job])
    os.rename(site.journal.spool, f"{site.journal.spool}.away")
    with pytest.raises(OSError, match="spool"):
        scanner.scan(frozenset())
    os.rename(f"{site.journal.spool}.away", site.journal.spool)
    assert [found.name for found in scanner.scan(frozenset()).found] == [job.name]


def test_directories_that_are_none_of_ours(site: PoolContext) -> None:
    for name in ("empty", "strange"):
        Path(site.journal.jobs, name).mkdir()
    Path(site.journal.jobs, "strange", "request.json").write_text("{")
    Path(site.journal.jobs, "file").touch()
    assert Scanner(site.journal).scan(frozenset()).found == []


def test_a_job_that_ended_before_its_number_was_known_is_ours_all_the_same(
    site: PoolContext,
) -> None:
    job = job_of()
    site.journal.prepare()
    placed(site.journal, job)
    final = accepted(job)  # what is empty is left out
    site.journal.write_final(job.name, final)
    found = load(site.journal, job.name)
    assert found is not None
    assert (found.native, found.final) == ("", final)
