"""A pool's directory: all state of its jobs is on disk, so that any process may die any time.

    accepted/             jobs without a directory of their own yet: see inbox.py
    jobs/<job>/           one job, for as long as its pod is there (mode 0700, files 0600)
        job.sh, ...       as sent: see docs/job-script.md
        request.json      the job without its script and files
        submitting        created before it is submitted to the batch system
        native            its id there, once known
        final             its final status, once it has ended
        lock              held while it is submitted or removed
    deleted/<job>         its tombstone: when deletion was requested, with which grace period
    spool/                records of running jobs, one file each
    incoming/             half-written files; old ones are leftovers

Files that count are written there and renamed. A pool's directory may be shared by submitters.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import stat
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, Optional, Union

from submitter.common.errors import SubmitRefused
from submitter.common.filelock import locked
from submitter.common.fsync import sync_below
from submitter.common.guarded_files import LARGE, OddEntry, load_object, read, remove
from submitter.store.inbox import Inbox, read_accepted_ms
from templates.common.errors import ConfigError, InterlinkNatsError, WireError, one_line
from templates.job.directory import REQUEST, find_path_conflict, write_file, write_job
from templates.job.model import Job
from templates.protocol.messages import (
    DELETED,
    MALFORMED,
    UNAVAILABLE,
    Delete,
    Refusal,
    describe,
    read_job,
)
from templates.protocol.publications import read_status

logger = logging.getLogger(__name__)

JOURNALED = "journaled"
KNOWN = "known"

FOLDERS = ("jobs", "deleted", "spool", "incoming", "accepted")
LARGEST_FINAL = 1024 * 1024  # it goes over NATS with those of others
_SCRIPT = b"job.sh"  # placeholder, as only the file has the script
_SENT_WRONG = (errno.EEXIST, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EISDIR, errno.EINVAL)

Outcome = Union[str, Refusal]


class Tombstone(NamedTuple):
    """A request to delete a job; it outlives the job, so that a late create is refused."""

    at_ms: int
    grace_s: Optional[int]  # None: the job's own
    lost: bool = False  # not requested: the job's directory was removed by hand


def check_own_folder(path: str, *, may_be_link: bool = True) -> None:
    """Raise ``ConfigError`` if another user could exchange what is in a folder."""
    found = os.stat(path, follow_symlinks=may_be_link)
    if not stat.S_ISDIR(found.st_mode):
        raise ConfigError(path, "is not a folder, but a file or a link")
    if found.st_uid not in (0, os.geteuid()):
        raise ConfigError(path, f"belongs to user {found.st_uid}: let it belong to this one")
    if found.st_mode & stat.S_IWOTH:
        raise ConfigError(path, f"everybody can write there: chmod o-w {path}")


class Journal:
    """The files of one pool; every method blocks, and is called in threads."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.jobs, self.deleted, self.spool, self.incoming, accepted = (
            f"{directory}/{name}" for name in FOLDERS
        )
        self.accepted = Inbox(accepted)

    def prepare(self) -> None:
        """Create the folders; raise ``OSError``, or ``ConfigError`` if they are not ours alone."""
        for path in (self.directory, *(f"{self.directory}/{name}" for name in FOLDERS)):
            os.makedirs(path, 0o700, exist_ok=True)
            check_own_folder(path, may_be_link=path == self.directory)

    def of(self, job: str) -> str:
        """Return the job's own directory."""
        return f"{self.jobs}/{job}"

    # --- new jobs -------------------------------------------------------------------------------

    def store(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Accept all jobs with one sync, so that what is answered survives a power cut."""
        fresh: dict[str, Job] = {}
        outcomes: list[Outcome] = []
        try:
            self.accepted.look()
            for job in jobs:
                outcomes.append(KNOWN if job.name in fresh else self._judged(job))
                if outcomes[-1] == JOURNALED:
                    fresh[job.name] = job
            if fresh:
                self.accepted.append(list(fresh.values()), _now_ms())
        except OSError as error:
            outcomes += [JOURNALED] * (len(jobs) - len(outcomes))
            return [_unavailable(error) if was == JOURNALED else was for was in outcomes]
        return outcomes

    def _judged(self, job: Job) -> Outcome:
        if self.has_tombstone(job.name):
            return Refusal(DELETED, "the pod's deletion came before its creation", False)
        if self.has(job.name):
            return KNOWN
        wrong = find_path_conflict([file.path for file in job.files])
        if wrong:
            return Refusal(MALFORMED, f"its files cannot be written: {wrong}", False)
        return JOURNALED

    def has(self, name: str) -> bool:
        """Return whether the job exists, with a directory or without."""
        return name in self.accepted or os.path.exists(self.of(name))

    def has_tombstone(self, name: str) -> bool:
        """Return whether deletion of the job was requested."""
        return os.path.lexists(f"{self.deleted}/{name}")

    def unpack(self, name: str) -> None:
        """Create the job's directory, if it has none yet.

        If several submitters try, one of them succeeds. Raise ``OSError``, and ``SubmitRefused``
        if this file system cannot hold such a job.
        """
        if name not in self.accepted:
            return
        found = None if os.path.exists(self.of(name)) else self.accepted.read(name)
        if found is not None:
            self._make(*found)
        self.accepted.settle(name)
        if found is not None and self.has_tombstone(name):
            self.remove(name)  # it was deleted meanwhile, without a directory

    def _make(self, job: Job, accepted_ms: int) -> None:
        draft = f"{self.incoming}/{job.name}.{uuid.uuid4().hex}"
        try:
            _write_draft(job, accepted_ms, draft)
            with suppress(FileExistsError):  # another submitter was quicker
                _rename(draft, self.of(job.name))
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def withdraw(self, name: str) -> None:
        """Settle a deleted job that has no directory, so that it gets none."""
        self.accepted.settle(name)

    def tidy(self) -> None:
        """Erase the records of jobs that have a directory by now."""
        self.accepted.tidy(lambda: sync_below(self.directory))

    def close(self) -> None:
        """Release accepted jobs to other submitters; raise ``OSError``."""
        self.tidy()
        self.accepted.close()

    # --- deletions ------------------------------------------------------------------------------

    def bury(self, wishes: Sequence[Delete], lost: bool = False) -> list[Union[bool, Refusal]]:
        """Write tombstones durably; return for each job whether it exists, or a refusal."""
        outcomes: list[Union[bool, Refusal]] = []
        for wish in wishes:
            stone = Tombstone(_now_ms(), wish.grace_period_s, lost)
            try:
                self.write(f"{self.deleted}/{wish.name}", json.dumps(stone._asdict()).encode())
                outcomes.append(self.has(wish.name))
            except OSError as error:
                outcomes.append(_unavailable(error))
        try:
            sync_below(self.directory)
        except OSError as error:
            return [_unavailable(error)] * len(wishes)
        return outcomes

    def tombstone(self, job: str) -> Optional[Tombstone]:
        """Return a job's tombstone; None if it has none. One that cannot be read counts, too."""
        try:
            raw = read(f"{self.deleted}/{job}")
            return None if raw is None else _parse_tombstone(load_object(raw))
        except (OddEntry, ValueError):
            return Tombstone(_now_ms(), None)

    def remove(self, job: str) -> None:
        """Remove a job's directory: renamed first, so that no process reads half of it."""
        self.accepted.settle(job)
        grave = f"{self.incoming}/{job}.{uuid.uuid4().hex}"
        try:
            _rename_any(self.of(job), grave)
        except FileNotFoundError:
            return
        remove(grave)  # the janitor removes what is left

    # --- one job --------------------------------------------------------------------------------

    def check_directory(self, job: str) -> None:
        """Raise ``OddEntry`` unless a job's directory is one that we have made."""
        found = os.lstat(self.of(job))
        if not stat.S_ISDIR(found.st_mode):
            raise OddEntry(self.of(job), "is no directory")
        if found.st_uid not in (os.geteuid(), os.stat(self.jobs).st_uid):
            raise OddEntry(self.of(job), f"is user {found.st_uid}'s")

    @contextmanager
    def lock(self, job: str) -> Iterator[bool]:
        """Hold the job's lock; yield False if another submitter has it."""
        with locked(f"{self.of(job)}/lock", wait=False) as mine:
            yield mine

    def write(self, path: str, content: bytes) -> None:
        """Write a file atomically."""
        draft = f"{self.incoming}/{uuid.uuid4().hex}"
        try:
            write_file(draft, content)
            os.rename(draft, path)
        except OSError:
            _unlink(draft)
            raise

    def write_final(self, job: str, status: bytes) -> bytes:
        """Write the job's final status, unless another submitter has; return the written one."""
        path, draft = f"{self.of(job)}/final", f"{self.incoming}/{uuid.uuid4().hex}"
        try:
            write_file(draft, status)
            os.link(draft, path)
        except FileExistsError:
            return self.read_final(job) or status
        finally:
            _unlink(draft)
        return status

    def read_final(self, job: str) -> Optional[bytes]:
        """Return the job's final status; None if none is written that can be read."""
        path = f"{self.of(job)}/final"
        try:
            raw = read(path, LARGEST_FINAL)
            if raw is not None and read_status(load_object(raw)).job != job:
                raise WireError("status.job", "is another one")
        except (OddEntry, ValueError, InterlinkNatsError) as error:
            logger.warning("job=%s: its final status counts for nothing: %s", job, error)
            return None
        return raw

    def forget_secrets(self, job: str) -> None:
        """Remove the secrets of a job that has ended."""
        remove(f"{self.of(job)}/secret")


def _write_draft(job: Job, accepted_ms: int, draft: str) -> None:
    try:
        write_job(job, draft)
        request = dump_request(job, accepted_ms)
        if len(request) > LARGE:
            raise SubmitRefused(f"its description is larger than {LARGE} bytes")
        write_file(f"{draft}/{REQUEST}", request)
    except OSError as error:
        if error.errno in _SENT_WRONG:
            message = f"its files cannot be written: {error.strerror}"
            raise SubmitRefused(message) from None
        raise


def _rename(draft: str, folder: str) -> None:
    """Rename a directory; raise ``FileExistsError`` if the new name is taken."""
    try:
        os.rename(draft, folder)
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:
            raise FileExistsError(error.errno, error.strerror) from None
        raise


def _rename_any(folder: str, grave: str) -> None:
    """Rename a job's directory, also one that its job has made unwritable."""
    try:
        os.rename(folder, grave)
    except PermissionError:
        if os.path.islink(folder):
            raise
        os.chmod(folder, 0o700)
        os.rename(folder, grave)


def dump_request(job: Job, accepted_ms: int) -> bytes:
    """Return the content of request.json: the job without its script and files."""
    slim = describe(job._replace(files=()))
    return json.dumps({**slim, "accepted_ms": accepted_ms}, separators=(",", ":")).encode()


def load_request(raw: bytes) -> tuple[Job, int]:
    """Return the job in a request.json and when it was accepted; raise ``WireError``."""
    try:
        message = load_object(raw)
    except ValueError:
        raise WireError("request.json", "cannot be read") from None
    return read_job(message, _SCRIPT, ()), read_accepted_ms(message)


def _parse_tombstone(found: Mapping[str, Any]) -> Tombstone:
    """Return the tombstone in a file; raise ``ValueError``."""
    at_ms, grace_s, lost = found.get("at_ms"), found.get("grace_s"), found.get("lost")
    if type(at_ms) is not int or type(lost) is not bool:
        raise ValueError("is no tombstone")
    if grace_s is not None and (type(grace_s) is not int or not 0 <= grace_s < 2**31):
        raise ValueError("has no grace period")
    return Tombstone(at_ms, grace_s, lost)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return


def _unavailable(error: OSError) -> Refusal:
    message = f"the site cannot write to its directory of jobs: {error.strerror or error}"
    return Refusal(UNAVAILABLE, one_line(message), True)


def _now_ms() -> int:
    return int(time.time() * 1000)
