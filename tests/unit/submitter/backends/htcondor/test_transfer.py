"""Jobs on machines that do not see their directories: what goes there, and what comes back."""

from __future__ import annotations

import io
import os
import shutil
import signal
import stat
import subprocess
import tarfile
from pathlib import Path

import pytest

from submitter.backends.htcondor import transfer
from submitter.backends.htcondor.transfer import StreamUnpacker, read_frame
from submitter.store.journal import Journal
from templates.job.model import File
from templates.job.records import fold, parse_lines
from tests.unit.submitter.rig import eventually, job_of, placed


def journal_of(folder: Path) -> Journal:
    journal = Journal(str(folder / "pool"))
    journal.prepare()
    return journal


class There:
    """A machine that has only what was sent to it."""

    def __init__(self, folder: Path, journal: Journal, name: str) -> None:
        self.scratch = folder / "scratch"
        self.scratch.mkdir()
        self.directory = Path(journal.of(name))
        transfer.write_input(name, str(self.directory), "/bin/bash")
        for file in (transfer.STUB, transfer.INPUT):
            shutil.copy2(self.directory / file, self.scratch)

    def start(self) -> subprocess.Popen[bytes]:
        with (self.directory / transfer.STREAM).open("wb") as out:
            return subprocess.Popen(
                ["bash", transfer.STUB, "7.0"],
                cwd=self.scratch,
                stdout=out,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )


def test_a_job_without_its_directory(tmp_path: Path) -> None:
    journal = journal_of(tmp_path)
    job = job_of("echo first; sleep 1.5; printf 'a\\0b'; exit 3")
    placed(journal, job)
    there = There(tmp_path, journal, job.name)
    process = there.start()
    arrivals = StreamUnpacker(journal)
    log = there.directory / "logs" / "main.0.log"

    def has_begun() -> bool:
        arrivals.unpack(job.name)
        return log.exists() and log.read_bytes() == b"first\n"

    eventually(has_begun)
    assert process.poll() is None, "it came back while the job ran"
    assert process.wait(30) == 3
    assert process.stderr is not None
    with process.stderr:
        assert process.stderr.read() == b""
    arrivals.unpack(job.name)
    assert log.read_bytes() == b"first\na\0b"
    said = fold(parse_lines((there.directory / "records").read_bytes()))
    assert (said.exit_code, said.containers["main"].state) == (3, "terminated")
    assert (there.directory / "started").read_text().split()[1] == "7.0"
    spooled = [Path(journal.spool) / name for name in os.listdir(journal.spool)]
    dropped = [record for path in spooled for record in parse_lines(path.read_bytes())]
    assert fold(dropped) == said
    assert os.listdir(there.scratch) == [transfer.STUB]


def test_secrets_travel_with_their_modes_and_are_forgotten(tmp_path: Path) -> None:
    journal = journal_of(tmp_path)
    job = job_of("exit 0")
    secret = File("secret/key", b"hush", 0o600, True)
    placed(journal, job._replace(files=(*job.files, secret)))
    there = There(tmp_path, journal, job.name)
    packed = there.directory / transfer.INPUT
    assert stat.S_IMODE(packed.stat().st_mode) == 0o600
    with tarfile.open(packed) as archive:
        modes = {entry.name: stat.S_IMODE(entry.mode) for entry in archive}
    assert modes["secret"] == 0o700
    assert modes["secret/key"] == 0o600
    assert not {"request.json", "submitting", transfer.INPUT, transfer.STUB} & set(modes)
    transfer.remove_input(str(there.directory))
    assert not packed.exists()
    transfer.remove_input(str(there.directory))


def test_a_stop_is_passed_on(tmp_path: Path) -> None:
    journal = journal_of(tmp_path)
    job = job_of("trap 'echo told; exit 4' TERM; echo up; while :; do sleep 0.1; done")
    placed(journal, job)
    there = There(tmp_path, journal, job.name)
    process = there.start()
    arrivals = StreamUnpacker(journal)
    log = there.directory / "logs" / "main.0.log"

    def is_up() -> bool:
        arrivals.unpack(job.name)
        return log.exists()

    eventually(is_up)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    arrivals.unpack(job.name)
    assert log.read_bytes() == b"up\ntold\n"
    said = fold(parse_lines((there.directory / "records").read_bytes()))
    assert said.terminated_by_signal


# --- what comes back is data ----------------------------------------------------------------------


def frame(file: str, offset: int, data: bytes) -> bytes:
    return b"interlink-stream1 %s %d %d\n%s\n" % (file.encode(), offset, len(data), data)


def test_frames_come_in_pieces() -> None:
    whole = frame("records", 0, b"x\ny") + frame("logs/a.0.log", 5, b"")
    for cut in range(len(frame("records", 0, b"x\ny"))):
        file = io.BytesIO(whole[:cut])
        assert read_frame(file) is None
        assert file.tell() == 0
    file = io.BytesIO(whole)
    assert read_frame(file) == ("records", 0, b"x\ny")
    assert read_frame(file) == ("logs/a.0.log", 5, b"")
    assert read_frame(file) is None


@pytest.mark.parametrize(
    "hostile",
    [
        b"interlink-stream1 ../../etc/passwd 0 1\nx\n",
        b"interlink-stream1 logs/../x.0.log 0 1\nx\n",
        b"interlink-stream1 secret/key 0 1\nx\n",
        b"interlink-stream1 records -1 1\nx\n",
        b"interlink-stream1 records 0 9999999\nx\n",
        b"interlink-stream1 records 0 3\nabcdef\n",
        b"x" * 5000 + b"\n",
        b"\xff\0\n\n\n",
    ],
)
def test_what_is_no_frame_is_passed_over(hostile: bytes) -> None:
    file = io.BytesIO(hostile + frame("records", 0, b"good"))
    assert read_frame(file) == ("records", 0, b"good")


def test_the_same_frames_twice_and_links(tmp_path: Path) -> None:
    journal = journal_of(tmp_path)
    job = job_of()
    placed(journal, job)
    directory = Path(journal.of(job.name))
    stream = directory / transfer.STREAM
    stream.write_bytes(frame("logs/main.0.log", 0, b"one") + frame("logs/main.0.log", 3, b"two"))
    for _ in range(2):
        StreamUnpacker(journal).unpack(job.name)
        assert (directory / "logs" / "main.0.log").read_bytes() == b"onetwo"
    (directory / "records").symlink_to(tmp_path / "elsewhere")
    stream.write_bytes(stream.read_bytes() + frame("records", 0, b"x\n"))
    StreamUnpacker(journal).unpack(job.name)
    assert not (tmp_path / "elsewhere").exists()
    StreamUnpacker(journal).unpack("no-such-job")


def test_records_of_another_job_are_not_spooled(tmp_path: Path) -> None:
    journal = journal_of(tmp_path)
    job = job_of()
    placed(journal, job)
    line = b"interlink1 job=another-one run=1 stream=job n=1 at=1 state=started node=x ;\n"
    (Path(journal.of(job.name)) / transfer.STREAM).write_bytes(frame("records", 0, line))
    StreamUnpacker(journal).unpack(job.name)
    assert os.listdir(journal.spool) == []


def test_another_submitter_drops_the_same_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither takes away what the other one is about to put there."""
    journal = journal_of(tmp_path)
    job = job_of()
    placed(journal, job)
    line = f"interlink1 job={job.name} run=1 stream=job n=1 at=1 state=started node=x ;\n".encode()
    (Path(journal.of(job.name)) / transfer.STREAM).write_bytes(frame("records", 0, line))
    one, other = StreamUnpacker(journal), StreamUnpacker(journal)
    seen = []

    def rename(source: str, target: str) -> None:
        """The other one comes to the same just then."""
        if not seen:
            seen.append(source)
            other.unpack(job.name)
        os.replace(source, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transfer.os, "rename", rename)
        one.unpack(job.name)
    (name,) = os.listdir(journal.spool)
    assert (Path(journal.spool) / name).read_bytes() == line
    assert (caplog.messages, name.endswith(".tmp")) == ([], False)
