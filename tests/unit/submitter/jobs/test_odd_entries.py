"""Whatever a job leaves where a file of ours is looked for, the other jobs of its pool go on."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import socket
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Callable

import pytest

from submitter.backends.base import JobRef
from submitter.backends.host.backend import HostBackend
from submitter.common import guarded_files
from submitter.common.errors import SubmitterError
from submitter.config.settings import Pool, Timing
from submitter.jobs.context import PoolContext
from submitter.jobs.lifecycle import JobLifecycle
from submitter.jobs.scanner import load, read_records
from submitter.pool import log_server
from submitter.store import log_files
from submitter.store.journal import Journal
from submitter.store.spool import Spool
from templates.job.directory import REQUEST
from templates.job.model import Job
from templates.job.status import ENDED
from templates.protocol.messages import Delete, LogRequest
from templates.protocol.publications import read_status
from tests.unit.submitter.fakes import moody, site_of
from tests.unit.submitter.rig import accepted, eventually, job_of, placed

pytestmark = pytest.mark.security

HANGS_S = 60  # none of this waits for anything that takes so long
MORE_MEMORY = 1 << 30
SPARSE = 3 << 30
OTHER_USER = 65534
DEEP = b"[" * 60_000
LONG = b"x" * 40_000 + b"\n"

# Names in a job's directory, and entries of the pool's that are named after it.
OWN = (
    "",
    "final",
    REQUEST,
    "native",
    "submitting",
    "records",
    "started",
    "lost",
    "lock",
    "secret",
    "output",
    "logs",
)
POOLS = ("deleted/{job}", "spool/{job}.5.job.1", "incoming/{job}", "accepted/{job}")
PLACES = (*(f"jobs/{{job}}/{name}".rstrip("/") for name in OWN), *POOLS)


def _bind(path: Path) -> None:
    before = os.getcwd()
    os.chdir(path.parent)  # the path of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(before)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(SPARSE)


def _closed(path: Path) -> None:
    path.write_text("{}")
    path.chmod(0)


def _of_another(path: Path) -> None:
    path.write_text(f"interlink1 job={path.name.partition('.')[0]} run=5 stream=job n=1 at=7 ;\n")
    if os.geteuid() == 0:
        os.chown(path, OTHER_USER, OTHER_USER)


# What stands in place of a file.
ODDITIES: dict[str, Callable[[Path], object]] = {
    "a folder": lambda path: path.mkdir(),
    "a full folder": lambda path: (path / "in").mkdir(parents=True),
    "a pipe": os.mkfifo,
    "a socket": _bind,
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to an endless file": lambda path: path.symlink_to("/dev/zero"),
    "a link to its folder": lambda path: path.symlink_to("."),
    "3 GB of nothing": _sparse,
    "nothing": lambda path: path.touch(),
    "noise": lambda path: path.write_bytes(b"\0\xff\r\n;" * 5000),
    "a long line": lambda path: path.write_bytes(LONG),
    "a deep list": lambda path: path.write_bytes(DEEP),
    "words of other types": lambda path: path.write_text(
        '{"at_ms": "x", "grace_s": "x", "lost": 7, "accepted_ms": [], "native": [], "job": 5}'
    ),
    "numbers that are none": lambda path: path.write_text(
        '{"at_ms": NaN, "grace_s": Infinity, "lost": false, "accepted_ms": Infinity}'
    ),
    "an option": lambda path: path.write_text("--all"),
    "no right to read it": _closed,
    "another user's": _of_another,
}


@pytest.fixture(autouse=True)
def _within_bounds(tmp_path: Path) -> Iterator[None]:
    """What would wait for ever or take gigabytes fails instead."""

    def fail(*_: object) -> None:
        for path in tmp_path.rglob("*"):
            if path.is_fifo():  # whoever waits in a thread waits no longer
                os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))
        raise AssertionError("something waits for an odd entry")

    handler, limits = signal.signal(signal.SIGALRM, fail), resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MORE_MEMORY, limits[1]))
    signal.alarm(HANGS_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, limits)


def plant(path: Path, oddity: str) -> None:
    """Put the oddity where something was; folders, and not what is in them, are moved away."""
    away = path.parents[2]
    if path.is_dir() and not path.is_symlink():
        path.rename(away / uuid.uuid4().hex)
    else:
        path.unlink(missing_ok=True)
    ODDITIES[oddity](path)


def record(job: str, number: int, words: str) -> str:
    return f"interlink1 job={job} run=5 stream=job n={number} at=7 {words} ;\n"


def site_in_a_hurry(folder: Path) -> PoolContext:
    site = site_of(folder)
    timing = Timing(poll_s=1, spool_s=1, lost_after_s=1)
    return site._replace(pool=replace(site.pool, timing=timing))


async def _runs_through(site: PoolContext, life: JobLifecycle, deleted: Job) -> None:
    """A job that comes behind all others is submitted and ends; another one is deleted."""
    good, folder = job_of("exit 4"), Path(site.journal.directory)
    assert site.journal.store([good]) == ["journaled"]
    life.accept(good)
    await _until(lambda: good.name in moody(site).taken, "the job is submitted")
    (folder / "spool" / f"{good.name}.5.job.2").write_text(
        record(good.name, 1, "state=started node=x") + record(good.name, 2, "state=finished exit=4")
    )
    await _until(lambda: _ended_with(site, good.name, 4), "its end is told")
    site.journal.bury([Delete(deleted.name, 0)])
    await _until(lambda: not os.path.exists(site.journal.of(deleted.name)), "a job is deleted")
    told, _ = site.table.page("", 1 << 30)
    assert {read_status(json.loads(one)).job for one in told} <= site.table.names()


def _ended_with(site: PoolContext, name: str, code: int) -> bool:
    entry = site.table.get(name)
    if entry is None or not entry.has_ended:
        return False
    return read_status(json.loads(entry.dump())).exit_code == code


async def _until(what: Callable[[], bool], why: str) -> None:
    for _ in range(int(HANGS_S / 0.05)):
        if what():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(why)


def _victims(site: PoolContext) -> dict[str, Job]:
    """A job for each place."""
    victims = {place: job_of() for place in PLACES}
    placed(site.journal, *victims.values())
    return victims


@pytest.mark.parametrize("oddity", ODDITIES)
def test_a_pool_goes_on_that_meets_them_at_its_start(tmp_path: Path, oddity: str) -> None:
    site = site_in_a_hurry(tmp_path)
    victims, last = _victims(site), job_of()
    placed(site.journal, last)
    for place, job in victims.items():
        plant(tmp_path / place.format(job=job.name), oddity)

    async def go() -> None:
        life = JobLifecycle(site)
        await life.start()
        try:
            await _until(lambda: site.table.get(last.name) is not None, "the last job is known")
            await _runs_through(site, life, last)
        finally:
            await life.stop()

    asyncio.run(go())


@pytest.mark.parametrize("oddity", ODDITIES)
def test_a_pool_goes_on_that_meets_them_later(tmp_path: Path, oddity: str) -> None:
    """Among jobs that wait, that the batch system has lost, that have ended and are deleted."""
    site = site_in_a_hurry(tmp_path)
    waiting, lost, ended, deleted = (_victims(site) for _ in range(4))
    last = job_of()
    placed(site.journal, last)
    for job in (*lost.values(), *ended.values(), *deleted.values()):
        site.journal.write(f"{site.journal.of(job.name)}/native", b"1")

    async def go() -> None:
        life = JobLifecycle(site)
        await life.start()
        try:
            assert len(site.table) == 4 * len(PLACES) + 1
            for job in ended.values():
                Path(site.journal.spool, f"{job.name}.5.job.9").write_text(
                    record(job.name, 9, "state=finished exit=0")
                )
            site.journal.bury([Delete(job.name, 0) for job in deleted.values()])
            for victims in (waiting, lost, ended, deleted):
                for place, job in victims.items():
                    path = tmp_path / place.format(job=job.name)
                    if path.parent.is_dir():
                        plant(path, oddity)
            await _runs_through(site, life, last)
        finally:
            await life.stop()

    asyncio.run(go())


@pytest.mark.parametrize("oddity", ODDITIES)
def test_their_logs_are_read_or_refused(tmp_path: Path, oddity: str) -> None:
    site, job = site_of(tmp_path), job_of()
    placed(site.journal, job)
    folder = Path(site.journal.of(job.name))
    (folder / "logs").mkdir(exist_ok=True)
    plant(folder / "logs" / "main.0.log", oddity)
    plant(folder / "logs" / "main.0.log.idx", oddity)
    wanted = LogRequest(job.name, "main", "", 1000, 0, False, False, True, 3, 5)
    try:
        window = log_server._first_window(str(folder), wanted, 0)
        if window is not None:
            stamper = log_files.Stamper(f"{folder}/logs/main.0.log", window)
            assert stamper.stamped(b"a line\n").endswith(b" a line\n")
        log_files.line_start(f"{folder}/logs/main.0.log", 1)
    except OSError:
        pass  # the answer to this request
    (folder / "logs" / "main.0.log").rename(folder / "logs" / "away")
    plant(folder / "output", oddity)
    assert len(log_server._job_output(str(folder), "")) <= 2 * log_server.LARGEST_OUTPUT


@pytest.mark.parametrize("oddity", ODDITIES)
def test_a_machine_starts_jobs_among_them(tmp_path: Path, oddity: str) -> None:
    journal = Journal(str(tmp_path))
    journal.prepare()
    machine = HostBackend(Pool(name="site", directory=str(tmp_path)))
    machine.capacity()
    victim, other, good = job_of(), job_of(), job_of()
    placed(journal, victim, other, good)
    for folder in ("running", "machines"):
        (tmp_path / folder).mkdir(exist_ok=True)
        plant(tmp_path / folder / victim.name, oddity)
    plant(Path(journal.of(other.name), "begun"), oddity)
    for job in (victim, other):
        with suppress(OSError, SubmitterError):  # of this job
            machine.find([job.name])
    assert machine.capacity()
    ref = JobRef(good.name, machine.submit(good, journal.of(good.name)), journal.of(good.name))
    eventually(lambda: machine.poll([ref])[good.name].phase == ENDED)
    assert (Path(ref.directory) / "started").exists()


def test_only_a_jobs_own_records_count(tmp_path: Path) -> None:
    """Those in a file that is named after it, and belongs to the pool's user."""
    site, mine, other = site_of(tmp_path), job_of(), job_of()
    spool = Path(site.journal.spool)
    ends = record(other.name, 1, "state=finished exit=0")
    (spool / f"{mine.name}.5.job.1").write_text(ends + record(mine.name, 1, "state=started node=x"))
    foreign = spool / f"{other.name}.5.job.1"
    foreign.write_text(ends)
    if os.geteuid() == 0:
        os.chown(foreign, OTHER_USER, OTHER_USER)
    else:
        foreign.unlink()
    assert [record.job for record in Spool(str(spool)).read_new()] == [mine.name]


def test_a_final_status_counts_for_its_own_job(tmp_path: Path) -> None:
    site, mine, other = site_of(tmp_path), job_of(), job_of()
    placed(site.journal, mine)
    Path(site.journal.of(mine.name), "final").write_bytes(accepted(other))
    found = load(site.journal, mine.name)
    assert found is not None
    assert found.final is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_no_job(tmp_path: Path) -> None:
    site, job = site_of(tmp_path), job_of()
    placed(site.journal, job)
    os.chown(site.journal.of(job.name), OTHER_USER, OTHER_USER)
    with pytest.raises(guarded_files.OddEntry, match="is user 65534's"):
        load(site.journal, job.name)


def test_of_more_records_than_can_be_held_the_last_ones_count(tmp_path: Path) -> None:
    site, job = site_of(tmp_path), job_of()
    placed(site.journal, job)
    last = record(job.name, 7, "state=finished exit=3")
    with Path(site.journal.of(job.name), "records").open("w") as file:
        file.truncate(SPARSE)
        file.seek(SPARSE)
        file.write(f"\n{last}")
    assert [found.number for found in read_records(site.journal, job.name)] == [7]


def test_a_file_is_exchanged_and_grows_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with guarded_files.opened(str(path)) as descriptor:
        path.unlink()
        path.mkdir()
        assert guarded_files.read_at(descriptor, 0, 100) == b"old"
    grown = tmp_path / "grown"
    grown.write_bytes(b"x" * 100)
    with pytest.raises(guarded_files.OddEntry, match="larger than 99 bytes"):
        guarded_files.read(str(grown), 99)
    assert guarded_files.read(str(grown), 100) == b"x" * 100
