"""The interface of a batch system: docs/backends.md explains it at length."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from submitter.common.nats_request import AskNats, not_connected
from submitter.config.settings import Pool
from templates.job.model import Job
from templates.job.status import QUEUED


class JobRef(NamedTuple):
    """A job that was handed to the batch system."""

    name: str
    native: str
    """The identity that ``submit`` or ``find`` returned."""
    directory: str
    """Its directory; it may have been removed."""


class Observation(NamedTuple):
    """The batch system's word on a job."""

    phase: str = QUEUED
    """QUEUED, STARTED or ENDED, of templates.job.status."""
    reason: str = ""
    """Why it waits, or what ended it: one word."""
    message: str = ""
    """In the batch system's own words."""
    exit_code: int = 0
    """Of a job that has ended."""
    at_ms: int = 0
    """When it ended; 0 if that is not told."""
    lost: bool = False
    """Of a job that has ended: whether the batch system is to blame, so that it may be submitted
    again if its script has not begun."""
    if_terminated: str = ""
    """Of a job that has ended as if by itself: what it was, if its script had been told to end."""
    requeued: bool = False
    """True if it waits for the second time: it has been started, and put back into the queue."""


class Finding(NamedTuple):
    """Something that people should know of how a batch system can be used from here."""

    subject: str
    message: str
    hint: str = ""
    """Of what is wrong: how to mend it."""
    uncertain: bool = False
    """True if it may be wrong, but need not be."""


class Backend(ABC):
    """One pool's batch system.

    All methods block and are called in threads, never two of ``submit``, ``find`` and ``cancel`` at
    once for the same job. Whatever cannot be asked or understood is a ``BackendUnavailable``: a
    job's state changes only by what the batch system has really said. Two submitters may serve the
    same pool, on two machines: what one has submitted, the other has to find by the job's name.
    """

    settle_s: float = 30.0
    """Seconds after a job's end in which its last records may still be on their way."""
    visible_after_s: float = 60.0
    """Seconds after a submission that ended unclearly until ``find`` shows the job for certain."""
    urgent_s: float = 0.0
    """Between two polls while a job's end is in doubt, where asking costs nothing; 0: as always."""
    lost_after_s: float = 0.0
    """Seconds that a job must be missing in the batch system before it counts as lost; 0: what the
    pool's timing says."""

    starts_again: bool = False
    """True if the batch system may end a job by itself and start it again later: then a script that
    was told to end has not said its last word."""

    fetches_logs: bool = False
    """True if logs have to be brought from the batch system when somebody asks for them."""

    runs_here: bool = False
    """True if jobs run on this very machine, and need what is installed here."""

    def __init__(self, pool: Pool, ask: AskNats = not_connected) -> None:
        """Take the settings of a pool, and a way to ask on the submitter's connection to NATS."""
        self.pool = pool

    @classmethod
    def needs_shared_directory(cls, pool: Pool) -> bool:
        """Return whether every node has to see the pool's directory."""
        return True

    def check(self, job: Job) -> None:
        """Raise ``Forbidden`` for a job that this batch system can never run."""
        return

    @abstractmethod
    def submit(self, job: Job, directory: str) -> str:
        """Hand over a job, under its name; return its identity in the batch system.

        The job carries no script and no files: those are in the directory. What runs is
        ``bash <directory>/job.sh <directory> <spool>``, once. ``NoRoom`` when no job is taken now
        (the job stays first in our queue), ``SubmitRefused`` when this one never will be,
        ``SubmitUnclear`` when it may have been taken.
        """

    @abstractmethod
    def find(self, names: Sequence[str]) -> dict[str, str]:
        """Return the identities of jobs that were taken, whether they wait, run or have ended."""

    @abstractmethod
    def poll(self, refs: Sequence[JobRef]) -> Mapping[str, Observation]:
        """Ask once and return what is said of these jobs; those it does not know are missing."""

    @abstractmethod
    def cancel(self, refs: Sequence[JobRef], kill: bool) -> None:
        """End jobs: a TERM to the script, or, with ``kill``, everything at once and without words.

        Repeating it does no harm, nor does a job that has ended or was never there.
        """

    def clean(self, refs: Sequence[JobRef]) -> set[str]:
        """Remove what ended jobs have left in the batch system; return the names of clean ones."""
        return {ref.name for ref in refs}

    def fetch_logs(self, name: str, container: str) -> bool:
        """Bring the files of a container's log up to date; return whether they are."""
        return True

    def tidy(self) -> None:
        """Remove what jobs have left whose directories are gone: at the start, and now and then."""
        return

    def examine(self) -> Iterator[Finding]:
        """Yield what ``interlink-submitter check`` should say, besides the capacity."""
        return iter(())

    @abstractmethod
    def capacity(self) -> dict[str, str]:
        """Return what is offered to us: resource name -> quantity, as Kubernetes writes them."""
