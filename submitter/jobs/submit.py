"""Handing jobs to the batch system, each exactly once.

Runs in a thread. Whoever submits a job holds its lock. ``submitting`` stands in its directory from
before the batch system is told until its answer is written down as ``native``: where it stands
alone, after a crash or an unclear answer, nobody knows, and the job is looked for by its name
before anything else.
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
from submitter.store.journal import Journal, read
from templates.job.directory import write_file
from templates.job.model import Job

# What became of an attempt.
SUBMITTED = "submitted"
WAITS = "waits"  # the batch system takes no more at the moment
REFUSED = "refused"  # it never will
UNCLEAR = "unclear"  # it has to be asked again later
DOUBTFUL = "doubtful"  # it may yet show up in the batch system
BUSY = "busy"  # another submitter is at it
DELETED = "deleted"  # the pod has been deleted meanwhile
MISSING = "missing"  # the directory is gone

MOST_LOST = 3  # how often a job is submitted again that got lost
BEGUN = ("started", "records")  # one of these is there once the script has begun


class Doubtful(SubmitUnclear):
    """This one job has to wait until it can be told whether it was taken."""


class Attempt(NamedTuple):
    """What became of one job."""

    name: str
    outcome: str
    words: str = ""  # why, where that needs saying
    native: str = ""  # of SUBMITTED


class Submission:
    """The way of one pool's jobs into its batch system."""

    def __init__(self, journal: Journal, backend: Backend) -> None:
        self._journal = journal
        self._backend = backend

    def attempts(self, jobs: Sequence[Job]) -> list[Attempt]:
        """Submit in order, until the batch system takes no more."""
        made: list[Attempt] = []
        for job in jobs:
            made.append(self.attempt(job))
            if made[-1].outcome in (WAITS, UNCLEAR):
                break
        return made

    def attempt(self, job: Job) -> Attempt:
        """Submit one job, or find out what has become of it."""
        try:
            self._journal.unpack(job.name)
            with self._journal.lock(job.name) as mine:
                if not mine:
                    return Attempt(job.name, BUSY)
                if self._journal.tombstone(job.name) is not None:
                    return Attempt(job.name, DELETED)
                native = self.native(job.name)
                if native is not None:
                    return Attempt(job.name, SUBMITTED, native=native)
                return self._submit(job)
        except SubmitRefused as refused:
            return Attempt(job.name, REFUSED, str(refused))
        except (FileNotFoundError, NotADirectoryError):
            return Attempt(job.name, MISSING)
        except OSError as error:
            return Attempt(job.name, UNCLEAR, f"the job's directory: {error.strerror}")
        except Doubtful as error:
            return Attempt(job.name, DOUBTFUL, str(error))
        except (BackendUnavailable, SubmitUnclear) as error:
            return Attempt(job.name, UNCLEAR, str(error))

    def native(self, name: str) -> Optional[str]:
        """The job's identity in the batch system, asked for where that is in doubt.

        To be called with the job's lock; None means that it certainly was not submitted.
        """
        folder = self._journal.of(name)
        known = read(f"{folder}/native")
        if known is not None:
            return known.decode(errors="replace").strip()
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

    def learned(self, name: str) -> Optional[str]:
        """The identity of a job that has ended, whoever submitted it; None while nobody can tell.

        Empty if it never had any.
        """
        try:
            with self._journal.lock(name) as mine:
                return (self.native(name) or "") if mine else None
        except (FileNotFoundError, NotADirectoryError):
            return ""
        except (OSError, SubmitterError):
            return None

    def take_back(self, name: str, native: str) -> Optional[str]:
        """Have a job submitted again that the batch system has lost before its script began.

        Empty if it is ours to do; else its identity: a new one if another submitter has done so
        already, the old one if that cannot be told now. None when it has begun, or was lost too
        often. Should the first one turn up after all, only one of the two scripts runs: job.sh
        sees to that.
        """
        folder = self._journal.of(name)
        try:
            with self._journal.lock(name) as mine:
                now = (read(f"{folder}/native") or b"").decode(errors="replace").strip()
                if not mine or now != native:
                    return now if mine else native
                lost = int(read(f"{folder}/lost") or b"0") + 1
                if lost > MOST_LOST or any(os.path.exists(f"{folder}/{x}") for x in BEGUN):
                    return None
                self._journal.write(f"{folder}/lost", str(lost).encode())
                os.unlink(f"{folder}/native")  # first: what is submitting alone is looked for
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
