"""Whether the files and directories that the configuration names can serve their purpose."""

from __future__ import annotations

import contextlib
import fcntl
import os
import ssl
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from submitter.backends import registry
from submitter.cli import config_file
from submitter.cli.report import Report
from submitter.config.settings import Pool, Settings

ROOM = 1024**3  # bytes that must be free: scripts, records and logs of some thousand jobs
SCRATCH = ".check-"  # how what is tried out there begins
FILES = 10_000  # and how many files
LOCAL = ("btrfs", "ext2", "ext3", "ext4", "overlay", "xfs", "zfs")
FLEETING = ("ramfs", "tmpfs")


def check_configuration(path: Path, settings: Settings, report: Report) -> None:
    """The file itself, and those that hold secrets or certificates."""
    if path.stat().st_mode & stat.S_IWOTH:
        report.wrong(str(path), "everybody on this machine can change it", f"chmod o-w {path}")
    for key, name in config_file.secret_files(settings.nats):
        _check_secret(f"nats.{key}", name, report)
    name = settings.nats.ca_file
    if name:
        try:
            ssl.create_default_context(cafile=name)
        except (OSError, ssl.SSLError) as error:
            why = error.strerror or str(error)
            mend = "put the CA's certificate there, in PEM form"
            report.wrong("nats.ca_file", f"{name}: {why}", mend)
        else:
            report.ok("nats.ca_file", name)


def _check_secret(key: str, name: str, report: Report) -> None:
    try:
        with open(name, "rb") as file:
            mode, empty = os.fstat(file.fileno()).st_mode, not file.read().strip()
    except OSError as error:
        mend = "put it there, or name the right file, readable for this user"
        report.wrong(key, f"{name}: {error.strerror}", mend)
        return
    if empty:
        report.wrong(key, f"{name} is empty", "write the secret into it")
    elif mode & stat.S_IRWXO:
        words = f"everybody on this machine can read {name}"
        report.wrong(key, words, f"chmod o-rwx {name}, and ask for a new secret")
    else:
        report.ok(key, f"{name}, mode {stat.S_IMODE(mode):04o}")


# --- the directory of a pool ----------------------------------------------------------------------


def check_directory(pool: Pool, report: Report) -> None:
    """Where the pool's jobs will live."""
    what, folder = f"pool {pool.name}: directory", pool.directory
    try:
        _try_out(folder)
    except OSError as error:
        name = str(error.filename or folder)
        if os.path.basename(name).startswith(SCRATCH):
            name = folder  # it is not the scratch that is missing
        mend = f"mkdir -p {folder}, and make it this user's own"
        report.wrong(what, f"{name}: {error.strerror}", mend)
        return
    room = os.statvfs(folder)
    free = room.f_bavail * room.f_frsize
    if free < ROOM:
        report.wrong(what, f"{folder} has only {free // 1024**2} MiB free", "make room")
    elif room.f_files and room.f_favail < FILES:
        report.wrong(what, f"{folder} takes only {room.f_favail} more files", "make room")
    else:
        words = f"{folder} can be written and locked, {free // 1024**3} GiB free"
        report.ok(what, words)
    _check_file_system(pool, report)


def _check_file_system(pool: Pool, report: Report) -> None:
    what, kind = f"pool {pool.name}: file system", file_system(pool.directory)
    is_shared = registry.known_class(pool).needs_shared_directory(pool)
    if kind in FLEETING:
        words = f"{pool.directory} is in memory ({kind}): all jobs are lost when this machine boots"
        report.wrong(what, words, "take a directory on a disk")
    elif kind in LOCAL and is_shared:
        words = f"{pool.directory} is on a disk of this machine ({kind})"
        report.note(what, f"{words}: fine where this machine exports it, and every node sees it so")
    elif not is_shared:
        report.ok(what, kind)
    else:
        report.note(what, f"{kind}: every node must see it as {pool.directory}")


def _try_out(folder: str) -> None:
    """Do what the service will do there: make, sync, lock, rename, remove."""
    with _scratch(folder) as scratch:
        first, second = f"{scratch}/a", f"{scratch}/b"
        os.mkdir(first)
        with open(f"{first}/file", "wb") as file:
            file.write(b"x")
            file.flush()
            os.fsync(file.fileno())
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(first, second)
        os.unlink(f"{second}/file")
        os.rmdir(second)


@contextlib.contextmanager
def _scratch(folder: str) -> Iterator[str]:
    made = tempfile.mkdtemp(prefix=SCRATCH, dir=folder)
    try:
        yield made
    finally:
        with contextlib.suppress(OSError):
            os.rmdir(made)


def file_system(path: str) -> str:
    """The type of the file system that a path is on, as /proc has it."""
    real = os.path.realpath(path)
    best, kind = "", "unknown"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            place = line.split()[4].encode().decode("unicode_escape")
            inside = f"{real}/".startswith(f"{place.rstrip('/')}/")
            if inside and len(place) >= len(best):
                best, kind = place, line.partition(" - ")[2].split()[0]
    return kind
