"""Checks of the files and directories that the configuration names."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import ssl
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from submitter.backends import registry
from submitter.cli import config_file
from submitter.cli.report import Report
from submitter.config.settings import Pool, Settings
from submitter.store.journal import check_own_folder
from templates.common.errors import ConfigError
from templates.nats.options import LinkSettings

LEAST_FREE_BYTES = 1024**3  # for scripts, records and logs of some thousand jobs
LEAST_FREE_FILES = 10_000
SCRATCH_PREFIX = ".check-"  # of the name of the directory for trying operations
ON_LOCAL_DISK = ("btrfs", "ext2", "ext3", "ext4", "overlay", "xfs", "zfs")
IN_MEMORY = ("ramfs", "tmpfs")


def check_configuration(
    path: Path, settings: Settings, options: LinkSettings, report: Report
) -> None:
    """Check the configuration file, and the files with secrets or certificates."""
    if path.stat().st_mode & stat.S_IWOTH:
        report.wrong(str(path), "everybody on this machine can change it", f"chmod o-w {path}")
    for key, name in config_file.secret_files(settings.nats):
        if not options.secret:
            _check_secret(f"nats.{key}", name, report)
    name = settings.nats.ca_file
    if name:
        try:
            ssl.create_default_context(cafile=name)
        except (OSError, ssl.SSLError) as error:
            reason = error.strerror or str(error)
            hint = "put the CA's certificate there, in PEM form"
            report.wrong("nats.ca_file", f"{name}: {reason}", hint)
        else:
            report.ok("nats.ca_file", name)


def user_name() -> str:
    """Return who we are."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"number {os.geteuid()}"


def _check_secret(key: str, name: str, report: Report) -> None:
    try:
        with open(name, "rb") as file:
            mode, empty = os.fstat(file.fileno()).st_mode, not file.read().strip()
    except OSError as error:
        hint = "put it there, or name the right file"
        if isinstance(error, PermissionError):
            hint = f"as root: cat {name} | runuser -u {user_name()} -- {' '.join(sys.argv)}"
        report.wrong(key, f"{name}: {error.strerror}", hint)
        return
    if empty:
        report.wrong(key, f"{name} is empty", "write the secret into it")
    elif mode & stat.S_IRWXO:
        message = f"everybody on this machine can read {name}"
        report.wrong(key, message, f"chmod o-rwx {name}, and ask for a new secret")
    else:
        report.ok(key, f"{name}, mode {stat.S_IMODE(mode):04o}")


# --- the directory of a pool ----------------------------------------------------------------------


def check_directory(pool: Pool, report: Report) -> None:
    """Check the directory for the pool's jobs."""
    subject, folder = f"pool {pool.name}: directory", pool.directory
    try:
        _try_operations(folder)
    except OSError as error:
        name = str(error.filename or folder)
        if os.path.basename(name).startswith(SCRATCH_PREFIX):
            name = folder  # the pool's directory is missing, not the scratch one
        hint = f"mkdir -p {folder}, and make it this user's own"
        report.wrong(subject, f"{name}: {error.strerror}", hint)
        return
    try:
        check_own_folder(folder)
    except ConfigError as error:
        report.wrong(subject, str(error), "jobs are run from what is there")
        return
    space = os.statvfs(folder)
    free = space.f_bavail * space.f_frsize
    if free < LEAST_FREE_BYTES:
        report.wrong(subject, f"{folder} has only {free // 1024**2} MiB free", "make room")
    elif space.f_files and space.f_favail < LEAST_FREE_FILES:
        report.wrong(subject, f"{folder} takes only {space.f_favail} more files", "make room")
    else:
        message = f"{folder} can be written and locked, {free // 1024**3} GiB free"
        report.ok(subject, message)
    _check_file_system(pool, report)


def _check_file_system(pool: Pool, report: Report) -> None:
    subject, kind = f"pool {pool.name}: file system", file_system_type(pool.directory)
    is_shared = registry.load_class_or_base(pool).needs_shared_directory(pool)
    if kind in IN_MEMORY:
        message = (
            f"{pool.directory} is in memory ({kind}): all jobs are lost when this machine boots"
        )
        report.wrong(subject, message, "take a directory on a disk")
    elif kind in ON_LOCAL_DISK and is_shared:
        message = f"{pool.directory} is on a disk of this machine ({kind})"
        report.note(
            subject, f"{message}: fine where this machine exports it, and every node sees it so"
        )
    elif not is_shared:
        report.ok(subject, kind)
    else:
        report.note(subject, f"{kind}: every node must see it as {pool.directory}")


def _try_operations(folder: str) -> None:
    """Try what the service will do there: create, sync, lock, rename, remove."""
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
    path = tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=folder)
    try:
        yield path
    finally:
        with contextlib.suppress(OSError):
            os.rmdir(path)


def file_system_type(path: str) -> str:
    """Return the type of the file system of a path, from /proc."""
    real = os.path.realpath(path)
    mount_point, kind = "", "unknown"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            candidate = line.split()[4].encode().decode("unicode_escape")
            inside = f"{real}/".startswith(f"{candidate.rstrip('/')}/")
            if inside and len(candidate) >= len(mount_point):
                mount_point, kind = candidate, line.partition(" - ")[2].split()[0]
    return kind
