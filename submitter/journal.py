"""A pool's directory: what a site knows of its jobs, on disk, so that any process may die any time.

    jobs/<job>/           one job, for as long as its pod is there (mode 0700, files 0600)
        job.sh, ...       as sent: see docs/job-script.md
        request.json      the job without its script and files
        submitting        somebody was about to hand it to the batch system
        native            its identity there, once known
        final             its last status, for good, once it has ended
        lock              held by whoever submits or removes it
    deleted/<job>         its end was asked for: when, with which grace period
    spool/                records of running jobs, dropped one by one
    incoming/             half-written things; what is old in there is rubbish

What counts is written beside and renamed. A pool's directory may be shared by submitters.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Optional, Union

from submitter.locks import locked
from templates.errors import WireError, one_line
from templates.job import Job
from templates.job_directory import write_file, write_job
from templates.messages import (
    DELETED,
    MALFORMED,
    UNAVAILABLE,
    Delete,
    Refusal,
    describe,
    read_job,
)

JOURNALED = "journaled"
KNOWN = "known"

FOLDERS = ("jobs", "deleted", "spool", "incoming")
_SCRIPT = b"job.sh"  # stands for the script where only its file has it
_SENT_WRONG = (errno.EEXIST, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EISDIR, errno.EINVAL)
_TAKEN = (errno.EEXIST, errno.ENOTEMPTY)

Outcome = Union[str, Refusal]


class Tombstone(NamedTuple):
    """The wish to end a job; it outlives the job, so that a late create is refused."""

    at_ms: int
    grace_s: Optional[int]  # None: the job's own
    lost: bool = False  # nobody asked: the job's directory was removed by hand


class Journal:
    """The files of one pool; every method blocks, so they belong into threads."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.jobs, self.deleted, self.spool, self.incoming = (
            f"{directory}/{name}" for name in FOLDERS
        )

    def prepare(self) -> None:
        """Make the folders; raises ``OSError``."""
        os.makedirs(self.directory, 0o700, exist_ok=True)
        for name in FOLDERS:
            os.makedirs(f"{self.directory}/{name}", 0o700, exist_ok=True)

    def of(self, job: str) -> str:
        """The job's own directory."""
        return f"{self.jobs}/{job}"

    # --- taking jobs in -------------------------------------------------------------------------

    def store(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Journal all of them with one wait for the disk: what is answered survives a power cut."""
        drafts = [f"{self.incoming}/{job.name}.{uuid.uuid4().hex}" for job in jobs]
        outcomes = [self._draft(job, draft) for job, draft in zip(jobs, drafts)]
        try:
            if JOURNALED in outcomes:
                self._sync()
            outcomes = [
                self._publish(job.name, draft) if outcome == JOURNALED else outcome
                for job, draft, outcome in zip(jobs, drafts, outcomes)
            ]
            if JOURNALED in outcomes:
                _sync_folder(self.jobs)
        except OSError as error:
            outcomes = [_unavailable(error) if was == JOURNALED else was for was in outcomes]
        for draft, outcome in zip(drafts, outcomes):
            if outcome != JOURNALED:
                shutil.rmtree(draft, ignore_errors=True)
        return outcomes

    def _draft(self, job: Job, draft: str) -> Outcome:
        try:
            refused = self._refused(job.name)
            if refused is not None:
                return refused
            if os.path.exists(self.of(job.name)):
                return KNOWN
            write_job(job, draft)
            write_file(f"{draft}/request.json", dump_request(job, _now_ms()))
        except OSError as error:
            if error.errno in _SENT_WRONG:
                words = f"its files cannot be written: {error.strerror}"
                return Refusal(MALFORMED, words, False)
            return _unavailable(error)
        return JOURNALED

    def _publish(self, name: str, draft: str) -> Outcome:
        try:
            os.rename(draft, self.of(name))
        except OSError as error:
            return KNOWN if error.errno in _TAKEN else _unavailable(error)
        # Its deletion may have come meanwhile, to another submitter: nobody submits it then.
        return self._refused(name) or JOURNALED

    def _refused(self, name: str) -> Optional[Refusal]:
        if os.path.exists(f"{self.deleted}/{name}"):
            return Refusal(DELETED, "the pod's deletion came before its creation", False)
        return None

    def _sync(self) -> None:
        """All that was written below the pool's directory is on disk."""
        descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if _syncfs is None:
                os.sync()
            elif _syncfs(descriptor) != 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        finally:
            os.close(descriptor)

    # --- deletions ------------------------------------------------------------------------------

    def bury(self, wishes: Sequence[Delete], lost: bool = False) -> list[Union[bool, Refusal]]:
        """Remember durably that these jobs are to end; says of each whether it is there."""
        outcomes: list[Union[bool, Refusal]] = []
        for wish in wishes:
            stone = Tombstone(_now_ms(), wish.grace_period_s, lost)
            try:
                self.write(f"{self.deleted}/{wish.job}", json.dumps(stone._asdict()).encode())
                outcomes.append(os.path.exists(self.of(wish.job)))
            except OSError as error:
                outcomes.append(_unavailable(error))
        try:
            self._sync()
        except OSError as error:
            return [_unavailable(error)] * len(wishes)
        return outcomes

    def tombstone(self, job: str) -> Optional[Tombstone]:
        """The wish to end a job; None if there is none. One that cannot be read is one, too."""
        raw = read(f"{self.deleted}/{job}")
        if raw is None:
            return None
        try:
            found = json.loads(raw)
            return Tombstone(found["at_ms"], found["grace_s"], found["lost"])
        except (ValueError, KeyError, TypeError):
            return Tombstone(_now_ms(), None)

    def remove(self, job: str) -> None:
        """Remove a job's directory: out of sight first, so that nobody finds half of it."""
        grave = f"{self.incoming}/{job}.{uuid.uuid4().hex}"
        try:
            os.rename(self.of(job), grave)
        except FileNotFoundError:
            return
        shutil.rmtree(grave, ignore_errors=True)  # the janitor finds what resists

    # --- one job --------------------------------------------------------------------------------

    @contextmanager
    def lock(self, job: str) -> Iterator[bool]:
        """Hold the job against other submitters; False when one of them holds it."""
        with locked(f"{self.of(job)}/lock", wait=False) as mine:
            yield mine

    def write(self, path: str, content: bytes) -> None:
        """Write beside, and rename."""
        draft = f"{self.incoming}/{uuid.uuid4().hex}"
        try:
            write_file(draft, content)
            os.rename(draft, path)
        except OSError:
            _unlink(draft)
            raise

    def write_final(self, job: str, status: bytes) -> bytes:
        """Write down the job's last status, unless somebody has; the one that stands there."""
        path, draft = f"{self.of(job)}/final", f"{self.incoming}/{uuid.uuid4().hex}"
        try:
            write_file(draft, status)
            os.link(draft, path)
        except FileExistsError:
            return read(path) or status
        finally:
            _unlink(draft)
        return status

    def forget_secrets(self, job: str) -> None:
        """Remove what was secret in a job that has ended."""
        shutil.rmtree(f"{self.of(job)}/secret", ignore_errors=True)


def dump_request(job: Job, accepted_ms: int) -> bytes:
    """request.json: the job without its script and files."""
    slim = describe(job._replace(files=()))
    return json.dumps({**slim, "accepted_ms": accepted_ms}, separators=(",", ":")).encode()


def load_request(raw: bytes) -> tuple[Job, int]:
    """The slim job in a request.json and when it was accepted; raises ``WireError``."""
    try:
        message = json.loads(raw)
        accepted_ms = int(message["accepted_ms"])
    except (ValueError, KeyError, TypeError):
        raise WireError("request.json", "cannot be read") from None
    return read_job(message, [_SCRIPT]), accepted_ms


def read(path: str) -> Optional[bytes]:
    """What stands in a small file; None when it is not there."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return


def _unavailable(error: OSError) -> Refusal:
    words = f"the site cannot write to its directory of jobs: {error.strerror or error}"
    return Refusal(UNAVAILABLE, one_line(words), True)


def _sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _now_ms() -> int:
    return int(time.time() * 1000)


_syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
