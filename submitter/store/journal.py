"""A pool's directory: what a site knows of its jobs, on disk, so that any process may die any time.

    accepted/             jobs as they came, until each has a directory: see accepted.py
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

import errno
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple, Optional, Union

from submitter.common.errors import SubmitRefused
from submitter.common.filelock import locked
from submitter.common.fsync import sync_below
from submitter.store.inbox import Accepted
from templates.common.errors import WireError, one_line
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

JOURNALED = "journaled"
KNOWN = "known"

FOLDERS = ("jobs", "deleted", "spool", "incoming", "accepted")
_SCRIPT = b"job.sh"  # stands for the script where only its file has it
_SENT_WRONG = (errno.EEXIST, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EISDIR, errno.EINVAL)

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
        self.jobs, self.deleted, self.spool, self.incoming, accepted = (
            f"{directory}/{name}" for name in FOLDERS
        )
        self.accepted = Accepted(accepted)

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
        """Accept all of them with one wait for the disk: what is answered survives a power cut."""
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
        """Whether the job is there, with a directory or without."""
        return name in self.accepted or os.path.exists(self.of(name))

    def has_tombstone(self, name: str) -> bool:
        """Whether its end was asked for."""
        return os.path.exists(f"{self.deleted}/{name}")

    def unpack(self, name: str) -> None:
        """Give a job its directory, if it still has none.

        Several submitters may be at it: one of them makes it. Raises ``OSError``, and
        ``SubmitRefused`` where this file system cannot hold such a job.
        """
        if name not in self.accepted:
            return
        found = None if os.path.exists(self.of(name)) else self.accepted.read(name)
        if found is not None:
            self._make(*found)
        self.accepted.settle(name)
        if found is not None and self.has_tombstone(name):
            self.remove(name)  # its deletion came meanwhile, and found no directory

    def _make(self, job: Job, accepted_ms: int) -> None:
        draft = f"{self.incoming}/{job.name}.{uuid.uuid4().hex}"
        try:
            _write_draft(job, accepted_ms, draft)
            with suppress(FileExistsError):  # another submitter was quicker
                _rename(draft, self.of(job.name))
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def withdraw(self, name: str) -> None:
        """A job that is to end has no directory, and gets none."""
        self.accepted.settle(name)

    def tidy(self) -> None:
        """Leave nothing of what jobs looked like before they had a directory."""
        self.accepted.tidy(lambda: sync_below(self.directory))

    def close(self) -> None:
        """Leave accepted jobs to who takes over; raises ``OSError``."""
        self.tidy()
        self.accepted.close()

    # --- deletions ------------------------------------------------------------------------------

    def bury(self, wishes: Sequence[Delete], lost: bool = False) -> list[Union[bool, Refusal]]:
        """Remember durably that these jobs are to end; says of each whether it is there."""
        outcomes: list[Union[bool, Refusal]] = []
        for wish in wishes:
            stone = Tombstone(_now_ms(), wish.grace_period_s, lost)
            try:
                self.write(f"{self.deleted}/{wish.job}", json.dumps(stone._asdict()).encode())
                outcomes.append(self.has(wish.job))
            except OSError as error:
                outcomes.append(_unavailable(error))
        try:
            sync_below(self.directory)
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
        self.accepted.settle(job)
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


def _write_draft(job: Job, accepted_ms: int, draft: str) -> None:
    try:
        write_job(job, draft)
        write_file(f"{draft}/{REQUEST}", dump_request(job, accepted_ms))
    except OSError as error:
        if error.errno in _SENT_WRONG:
            words = f"its files cannot be written: {error.strerror}"
            raise SubmitRefused(words) from None
        raise


def _rename(draft: str, folder: str) -> None:
    """Raises ``FileExistsError`` where there is such a folder."""
    try:
        os.rename(draft, folder)
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:
            raise FileExistsError(error.errno, error.strerror) from None
        raise


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
    return read_job(message, _SCRIPT, ()), accepted_ms


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


def _now_ms() -> int:
    return int(time.time() * 1000)
