"""Accepted jobs without a directory: nothing of them is lost, and nothing secret stays."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from submitter.jobs.scanner import Scanner
from submitter.jobs.submit import Submission
from submitter.store import inbox
from submitter.store.inbox import Inbox
from submitter.store.journal import JOURNALED, KNOWN, Journal
from templates.job.model import File, Job
from templates.protocol.messages import Delete, Refusal
from tests.unit.submitter.fakes import site_of
from tests.unit.submitter.rig import job_of, placed

SECRET = b"hush-7f3a"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "pool"


@pytest.fixture
def journal(folder: Path) -> Journal:
    return journal_of(folder)


def journal_of(folder: Path) -> Journal:
    """Another submitter's, or a later one's."""
    made = Journal(str(folder))
    made.prepare()
    return made


def secret_job() -> Job:
    job = job_of()
    return job._replace(files=(*job.files, File("secret/key", SECRET, 0o400, True)))


def files(folder: Path) -> list[Path]:
    return sorted((folder / "accepted").iterdir())


def content(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in files(folder))


def test_a_job_comes_back_as_it_was_and_nobody_else_can_read_it(
    folder: Path, journal: Journal
) -> None:
    jobs = [secret_job(), job_of("echo \\u00e4 $'\\n'")]
    assert journal.store(jobs) == [JOURNALED, JOURNALED]
    assert os.listdir(journal.jobs) == []
    assert [path.stat().st_mode & 0o777 for path in files(folder)] == [0o600]
    later = journal_of(folder)
    later.accepted.look()
    for job in jobs:
        found = later.accepted.read(job.name)
        assert found is not None
        assert found[0] == job
        assert found[1] > 0


def test_jobs_share_a_file_until_it_is_large(
    folder: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        journal.store([job_of()])
    assert len(files(folder)) == 1
    monkeypatch.setattr(inbox, "LARGEST_FILE", 10)
    last = job_of()
    journal.store([last])
    assert len(files(folder)) == 2
    assert len(journal.accepted.names()) == 4
    journal.unpack(last.name)
    journal.tidy()
    assert len(files(folder)) == 2, "the newest is appended to once more"
    monkeypatch.setattr(inbox, "LARGEST_EMPTY_FILE", 10)
    journal.tidy()
    assert len(files(folder)) == 1
    journal.store([job_of()])
    assert len(files(folder)) == 2


def test_what_is_settled_leaves_nothing_secret(folder: Path, journal: Journal) -> None:
    job, waits = secret_job(), job_of()
    journal.store([job, waits])
    assert SECRET in content(folder)
    journal.unpack(job.name)
    assert journal.accepted.has_settled
    journal.tidy()
    assert not journal.accepted.has_settled
    assert SECRET not in content(folder)
    later = journal_of(folder)
    later.accepted.look()
    assert later.accepted.names() == [waits.name]


def test_it_is_overwritten_only_when_its_directory_is_on_disk(
    folder: Path, journal: Journal
) -> None:
    job = secret_job()
    placed(journal, job)

    def trouble() -> None:
        raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        journal.accepted.tidy(trouble)
    assert SECRET in content(folder)
    journal.tidy()
    assert SECRET not in content(folder)


def test_submitters_see_what_the_others_have_accepted(folder: Path, journal: Journal) -> None:
    other = journal_of(folder)
    job = job_of()
    assert journal.store([job]) == [JOURNALED]
    assert other.store([job]) == [KNOWN]
    assert other.bury([Delete(job.name, None)]) == [True]
    (answer,) = other.store([job])
    assert isinstance(answer, Refusal)


def test_a_job_that_two_have_accepted_gets_one_directory(folder: Path, journal: Journal) -> None:
    other, job = journal_of(folder), job_of()
    other.accepted.append([job], 1)
    journal.accepted.append([job], 1)
    for one in (journal, other):
        one.unpack(job.name)
    assert os.listdir(journal.jobs) == [job.name]
    assert os.listdir(journal.incoming) == []
    for one in (journal, other):
        Scanner(one).scan(frozenset())
        one.tidy()
        assert one.accepted.names() == []


def test_one_that_was_removed_is_not_made_again_from_what_is_left(
    folder: Path, journal: Journal
) -> None:
    job, other = job_of(), journal_of(folder)
    journal.store([job])
    other.accepted.look()
    journal.unpack(job.name)
    journal.bury([Delete(job.name, None)])
    journal.remove(job.name)
    other.unpack(job.name)
    assert os.listdir(journal.jobs) == []


def test_what_the_dead_have_left_is_taken_over(folder: Path) -> None:
    dead, job, gone = journal_of(folder), secret_job(), secret_job()
    dead.store([job, gone])
    dead.unpack(gone.name)
    heir = site_of(folder)
    scanner = Scanner(heir.journal)
    found = {one.name: one for one in scanner.scan(frozenset()).found}
    assert found.keys() == {job.name, gone.name}
    assert found[job.name].job == job._replace(script="", files=())
    heir.journal.tidy()
    assert SECRET in content(folder), "the holder lives"
    dead.accepted.close()
    heir.journal.tidy()
    assert content(folder).count(SECRET) == 1
    Submission(heir.journal, heir.backend).attempt(job)
    heir.journal.tidy()
    assert files(folder) == []
    assert sorted(os.listdir(heir.journal.jobs)) == sorted([job.name, gone.name])


def test_on_the_way_to_its_directory_no_job_vanishes(folder: Path, journal: Journal) -> None:
    scanner, job, other = Scanner(journal), job_of(), job_of()
    journal.store([job, other])
    known = frozenset([job.name, other.name])
    assert {one.name for one in scanner.scan(frozenset()).found} == known
    journal.unpack(job.name)
    sight = scanner.scan(known)
    assert (sight.found, sight.vanished) == ([], {})
    journal.withdraw(other.name)
    assert scanner.scan(known).vanished == {}, "its removal is under way"


def test_a_directory_that_is_removed_before_it_was_seen_is_missed(journal: Journal) -> None:
    scanner, job = Scanner(journal), job_of()
    placed(journal, job)
    shutil.rmtree(journal.of(job.name))
    known = frozenset([job.name])
    assert scanner.scan(known).vanished == {}
    assert scanner.scan(known, known).vanished == {job.name: None}


@pytest.mark.parametrize("cut", [1, 30, 200])
def test_half_a_record_was_never_accepted(folder: Path, journal: Journal, cut: int) -> None:
    whole, torn = job_of(), job_of()
    journal.store([whole])
    (path,) = files(folder)
    size = path.stat().st_size
    journal.store([torn])
    os.truncate(path, size + cut)
    later = journal_of(folder)
    later.accepted.look()
    assert later.accepted.names() == [whole.name]


def test_a_damaged_record_costs_no_other(
    folder: Path, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, third = job_of(), job_of(), job_of()
    for job in (first, second, third):
        journal.store([job])
    (path,) = files(folder)
    raw = path.read_bytes()
    path.write_bytes(raw.replace(second.name.encode(), b"x" * len(second.name)))
    later = journal_of(folder)
    later.accepted.look()
    assert later.accepted.names() == [first.name, third.name]
    assert "cannot be read" in caplog.text


def test_what_another_submitter_has_settled_is_forgotten(folder: Path, journal: Journal) -> None:
    other, job = journal_of(folder), job_of()
    journal.store([job, job_of()])
    other.accepted.look()
    placed_and_removed(journal, job)
    assert other.accepted.read(job.name) is None
    assert job.name not in other.accepted


def placed_and_removed(journal: Journal, job: Job) -> None:
    journal.unpack(job.name)
    journal.bury([Delete(job.name, None)])
    journal.remove(job.name)
    journal.tidy()


def test_a_file_that_somebody_has_removed_is_not_appended_to(
    folder: Path, journal: Journal
) -> None:
    journal.store([job_of()])
    files(folder)[0].unlink()
    job = job_of()
    assert journal.store([job]) == [JOURNALED]
    later = journal_of(folder)
    later.accepted.look()
    assert later.accepted.names() == journal.accepted.names() == [job.name]


def test_what_could_not_be_written_is_not_there(
    folder: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, refused, after = job_of(), job_of(), job_of()
    journal.store([before])

    def broken(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", broken)
        (answer,) = journal.store([refused])
    assert isinstance(answer, Refusal)
    assert "Input/output error" in answer.message
    assert journal.store([after]) == [JOURNALED]
    later = Inbox(str(folder / "accepted"))
    later.look()
    assert sorted(later.names()) == sorted([before.name, after.name])
