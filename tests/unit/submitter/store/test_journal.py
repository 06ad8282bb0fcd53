"""The files of a pool: whole or not there at all, and never for others to read."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from submitter.store.journal import FOLDERS, JOURNALED, KNOWN, Journal, load_request
from templates.common.errors import ConfigError, WireError
from templates.job.model import File
from templates.protocol.messages import DELETED, MALFORMED, UNAVAILABLE, Delete, Refusal
from tests.unit.submitter.rig import accepted, job_of, placed

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    made = Journal(str(tmp_path / "pool"))
    made.prepare()
    return made


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Journal]:
    """On a file system of its own, of 128 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", folder], check=True)
    try:
        made = Journal(str(folder / "pool"))
        made.prepare()
        yield made
        made.accepted.close()
    finally:
        subprocess.run(["umount", folder], check=True)


# --- whose the folders are ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", *FOLDERS])
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o703])
def test_a_folder_that_everybody_can_write_to_is_refused(
    journal: Journal, name: str, mode: int
) -> None:
    folder = Path(journal.directory, name)
    folder.chmod(mode)
    with pytest.raises(ConfigError) as caught:
        journal.prepare()
    assert str(caught.value) == f"{folder}: everybody can write there: chmod o-w {folder}"


@needs_root
@pytest.mark.parametrize("name", ["", *FOLDERS])
def test_a_folder_of_another_user_is_refused(journal: Journal, name: str) -> None:
    os.chown(f"{journal.directory}/{name}", 65534, 65534)
    with pytest.raises(ConfigError, match="belongs to user 65534: let it belong to this one"):
        journal.prepare()


@pytest.mark.parametrize("name", FOLDERS)
def test_a_link_in_place_of_a_folder_is_refused(
    journal: Journal, tmp_path: Path, name: str
) -> None:
    folder = Path(journal.directory, name)
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(ConfigError, match="is not a folder, but a file or a link"):
        journal.prepare()


def test_the_pools_directory_may_be_a_link_of_the_admins(tmp_path: Path) -> None:
    tmp_path.joinpath("real").mkdir(0o700)
    tmp_path.joinpath("pool").symlink_to("real")
    Journal(str(tmp_path / "pool")).prepare()
    assert {path.name for path in tmp_path.joinpath("real").iterdir()} == set(FOLDERS)


def everything(journal: Journal) -> list[Path]:
    return sorted(path for path in Path(journal.directory).rglob("*") if path.is_file())


def test_a_journaled_job_is_all_there_and_private(journal: Journal) -> None:
    secret = File("secret/volumes/token/value", b"hidden", 0o400, True)
    job = job_of()._replace(files=(*job_of().files, secret))
    placed(journal, job)
    folder = Path(journal.of(job.name))
    assert (folder / "job.sh").read_text() == job.script
    assert (folder / "secret/volumes/token/value").read_bytes() == b"hidden"
    assert folder.stat().st_mode & 0o777 == 0o700
    for path in everything(journal):
        assert path.stat().st_mode & 0o077 == 0, path
    request = (folder / "request.json").read_bytes()
    assert b"hidden" not in request
    assert load_request(request)[0] == job._replace(script="job.sh", files=())
    assert os.listdir(journal.incoming) == []


def test_of_many_at_once_each_gets_its_own_answer(journal: Journal) -> None:
    good, again, late = job_of(), job_of(), job_of()
    bad = job_of()._replace(files=(File("job.sh/under", b"", 0o600, False),))
    journal.store([again])
    journal.bury([Delete(late.name, None)])
    answers = journal.store([good, again, late, bad, good])
    assert answers[0] == JOURNALED
    assert answers[1] == answers[4] == KNOWN
    refused = [answer.code for answer in answers if isinstance(answer, Refusal)]
    assert refused == [DELETED, MALFORMED]
    for job in (good, again, late, bad):
        journal.unpack(job.name)
    assert sorted(os.listdir(journal.jobs)) == sorted([good.name, again.name])
    assert os.listdir(journal.incoming) == []


@pytest.mark.parametrize(
    "path", ["request.json", "job.sh", "x" * 300, "job.sh/below", "/".join(["x" * 200] * 30)]
)
def test_files_that_cannot_be_written_are_the_senders_fault(journal: Journal, path: str) -> None:
    job = job_of()
    job = job._replace(files=(*job.files, File(path, b"", 0o600, False)))
    (answer,) = journal.store([job])
    assert isinstance(answer, Refusal)
    assert (answer.code, answer.retry) == (MALFORMED, False)
    assert everything(journal) == []


@needs_root
def test_a_full_disk_refuses_and_leaves_nothing(small: Journal) -> None:
    big = job_of()._replace(files=(File("volumes/big", b"x" * 200_000, 0o600, False),))
    (answer,) = small.store([big])
    assert isinstance(answer, Refusal)
    assert (answer.code, answer.retry) == (UNAVAILABLE, True)
    assert "No space left" in answer.message
    small.tidy()
    assert everything(small) == []
    assert small.store([job_of()]) == [JOURNALED]


@needs_root
def test_a_disk_that_is_full_when_a_job_is_to_get_its_directory(small: Journal) -> None:
    job = job_of()._replace(files=(File("volumes/big", b"x" * 40_000, 0o600, False),))
    assert small.store([job]) == [JOURNALED]
    hog = Path(small.directory, "hog")
    hog.write_bytes(b"x" * 50_000)
    with pytest.raises(OSError, match="No space left"):
        small.unpack(job.name)
    assert os.listdir(small.jobs) == os.listdir(small.incoming) == []
    hog.unlink()
    small.unpack(job.name)
    assert Path(small.of(job.name), "volumes/big").read_bytes() == job.files[0].content


@needs_root
def test_a_read_only_disk_refuses(small: Journal) -> None:
    folder = Path(small.directory).parent
    subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
    job = job_of()
    for answer in (*small.store([job]), *small.bury([Delete(job.name, None)])):
        assert isinstance(answer, Refusal)
        assert (answer.code, answer.retry) == (UNAVAILABLE, True)


def test_a_missing_directory_refuses(tmp_path: Path) -> None:
    (answer,) = Journal(str(tmp_path / "nowhere")).store([job_of()])
    assert isinstance(answer, Refusal)
    assert (answer.code, answer.retry) == (UNAVAILABLE, True)


def test_the_first_last_word_counts(journal: Journal) -> None:
    job = job_of()
    placed(journal, job)
    first = accepted(job)
    assert journal.write_final(job.name, first) == first
    assert journal.write_final(job.name, b"second") == first
    assert os.listdir(journal.incoming) == []


def test_tombstones(journal: Journal) -> None:
    job = job_of()
    journal.store([job])
    other = job_of().name
    assert journal.bury([Delete(job.name, 7), Delete(other, None)]) == [True, False]
    stone = journal.tombstone(job.name)
    assert stone is not None
    assert stone.grace_s == 7
    assert journal.tombstone("nobody") is None
    Path(journal.deleted, other).write_bytes(b'{"torn')
    assert journal.tombstone(other) is not None


def test_a_job_is_locked_once(journal: Journal) -> None:
    job = job_of()
    placed(journal, job)
    with journal.lock(job.name) as first, journal.lock(job.name) as second:
        assert (first, second) == (True, False)
    with journal.lock(job.name) as third:
        assert third


def test_a_removed_job_leaves_nothing(journal: Journal) -> None:
    job = job_of()
    placed(journal, job)
    journal.remove(job.name)
    journal.remove(job.name)
    journal.tidy()
    assert b"bash" not in b"".join(path.read_bytes() for path in everything(journal))


@pytest.mark.parametrize("raw", [b"", b"{}", b"[]", b"null", b'{"v": 1, "name": 3}', b"\xff"])
def test_a_request_that_cannot_be_read(raw: bytes) -> None:
    with pytest.raises(WireError):
        load_request(raw)
