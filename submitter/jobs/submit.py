"""Submission of jobs to the batch system, each exactly once.

Runs in a thread, with the job's lock. The file ``submitting`` is created before the batch system is
called, and ``native`` written with its answer: where ``submitting`` stands alone, after a crash or
an unclear answer, the job is first looked for in the batch system, by its name.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import NamedTuple, Optional

from submitter.backends.base import Backend
from submitter.common.errors import (
    BackendUnavailable,
    NoRoom,
    SubmitRefused,
    SubmitterError,
    SubmitUnclear,
)
from submitter.common.guarded_files import is_odd, read, read_id
from submitter.store.journal import Journal
from templates.job.directory import write_file
from templates.job.model import Job

# Outcomes of an attempt.
SUBMITTED = "submitted"
WAITS = "waits"  # the batch system takes no more at the moment
REFUSED = "refused"  # it never will take this one
UNCLEAR = "unclear"  # no answer: to be tried again later
DOUBTFUL = "doubtful"  # it may yet show up in the batch system
BUSY = "busy"  # another submitter has the lock
DELETED = "deleted"  # the pod has been deleted meanwhile
MISSING = "missing"  # the directory is gone

MAX_RESUBMITS = 3  # of one job
BEGUN_FILES = ("started", "records")  # one of these exists once the script has begun


class Doubtful(SubmitUnclear):
    """A submission of unknown outcome; other jobs need not wait for it."""


class Attempt(NamedTuple):
    """The outcome of submitting one job."""

    name: str
    outcome: str
    message: str = ""  # of the batch system, or of the error
    native: str = ""  # of SUBMITTED


class Submission:
    """Submission of one pool's jobs to its batch system."""

    def __init__(self, journal: Journal, backend: Backend) -> None:
        self._journal = journal
        self._backend = backend

    def attempt_all(self, jobs: Sequence[Job]) -> list[Attempt]:
        """Submit in order, until the batch system takes no more."""
        made: list[Attempt] = []
        for job in jobs:
            made.append(self.attempt(job))
            if made[-1].outcome in (WAITS, UNCLEAR):
                break
        return made

    def attempt(self, job: Job) -> Attempt:
        """Submit one job, unless it was submitted already."""
        try:
            self._journal.unpack(job.name)
            with self._journal.lock(job.name) as mine:
                if not mine:
                    return Attempt(job.name, BUSY)
                if self._journal.tombstone(job.name) is not None:
                    return Attempt(job.name, DELETED)
                native = self.find_native_id(job.name)
                if native is not None:
                    return Attempt(job.name, SUBMITTED, native=native)
                return self._submit(job)
        except SubmitRefused as refused:
            return Attempt(job.name, REFUSED, str(refused))
        except (FileNotFoundError, NotADirectoryError):
            return Attempt(job.name, MISSING)
        except OSError as error:
            outcome = DOUBTFUL if is_odd(error) else UNCLEAR
            return Attempt(job.name, outcome, f"the job's directory: {error.strerror}")
        except Doubtful as error:
            return Attempt(job.name, DOUBTFUL, str(error))
        except (BackendUnavailable, SubmitUnclear) as error:
            return Attempt(job.name, UNCLEAR, str(error))

    def find_native_id(self, name: str) -> Optional[str]:
        """Return the job's native id, from the batch system where that is in doubt.

        To be called with the job's lock; None if the job certainly was not submitted.
        """
        folder = self._journal.of(name)
        written = read_id(f"{folder}/native")
        if written is not None:
            return written
        try:
            since = os.stat(f"{folder}/submitting").st_mtime
        except FileNotFoundError:
            return None
        found = self._backend.find([name]).get(name)
        if found is not None:
            self._journal.write(f"{folder}/native", found.encode())
            return found
        if abs(time.time() - since) < self._backend.visible_after_s:
            raise Doubtful("its submission ended unclearly, and it cannot be seen yet")
        os.unlink(f"{folder}/submitting")
        return None

    def resolve_native_id(self, name: str) -> Optional[str]:
        """Return the native id of a job that has ended; None while it cannot be determined.

        Empty if the job was never submitted.
        """
        try:
            with self._journal.lock(name) as mine:
                return (self.find_native_id(name) or "") if mine else None
        except (FileNotFoundError, NotADirectoryError):
            return ""
        except (OSError, SubmitterError):
            return None

    def prepare_resubmit(self, name: str, native: str) -> Optional[str]:
        """Prepare to submit a job again that the batch system lost before its script began.

        Return an empty id if we are to submit it, a new one if another submitter has done so, the
        old one if that cannot be determined now. None if the script has begun, or the job was lost
        too often. Should the first job turn up after all, job.sh lets only one of the scripts run.
        """
        folder = self._journal.of(name)
        try:
            with self._journal.lock(name) as mine:
                now = read_id(f"{folder}/native") or ""
                if not mine or now != native:
                    return now if mine else native
                lost = int(read(f"{folder}/lost") or b"0") + 1
                if lost > MAX_RESUBMITS or any(
                    os.path.exists(f"{folder}/{x}") for x in BEGUN_FILES
                ):
                    return None
                self._journal.write(f"{folder}/lost", str(lost).encode())
                os.unlink(
                    f"{folder}/native"
                )  # first: with ``submitting`` alone, the job is looked for
                os.unlink(f"{folder}/submitting")
        except (OSError, ValueError):
            return native
        return ""

    def _submit(self, job: Job) -> Attempt:
        folder = self._journal.of(job.name)
        write_file(f"{folder}/submitting", b"")
        try:
            native = self._backend.submit(job, folder)
        except NoRoom as full:
            os.unlink(f"{folder}/submitting")
            return Attempt(job.name, WAITS, str(full))
        self._journal.write(f"{folder}/native", native.encode())
        return Attempt(job.name, SUBMITTED, native=native)
