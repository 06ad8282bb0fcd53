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
    """A reference to a job that was submitted to the batch system."""

    name: str
    native: str
    """The identity that ``submit`` or ``find`` returned."""
    directory: str
    """Its directory; it may have been removed."""


class Observation(NamedTuple):
    """The state of a job as the batch system reports it."""

    phase: str = QUEUED
    """QUEUED, STARTED or ENDED, of templates.job.status."""
    reason: str = ""
    """Why it waits, or what ended it: one word."""
    message: str = ""
    """The batch system's own text."""
    exit_code: int = 0
    """Of a job that has ended."""
    at_ms: int = 0
    """When it ended; 0 if that is not reported."""
    lost: bool = False
    """The job has ended by a failure of the batch system, so that it may be submitted again if its
    script has not begun."""
    if_terminated: str = ""
    """Of a job that seems to have ended by itself: the reason, if its script got a TERM before."""
    requeued: bool = False
    """The job waits for the second time: it was started, and put back into the queue."""


class Finding(NamedTuple):
    """A result of checking how a batch system can be used from this machine."""

    subject: str
    message: str
    hint: str = ""
    """How to fix what is wrong; empty if nothing is."""
    uncertain: bool = False
    """It may be wrong, but need not be."""


class Backend(ABC):
    """One pool's batch system.

    All methods block and are called in threads, never two of ``submit``, ``find`` and ``cancel`` at
    once for the same job. A request that fails, or a reply that cannot be parsed, is a
    ``BackendUnavailable``: a job's state changes only by what the batch system has reported. Two
    submitters may serve the same pool, on two machines: what one has submitted, the other has to
    find by the job's name.
    """

    settle_s: float = 30.0
    """Seconds after a job's end in which its last records may still arrive."""
    visible_after_s: float = 60.0
    """Seconds after an unclear submission until ``find`` shows the job for certain."""
    urgent_s: float = 0.0
    """Seconds between two polls while a job's end is in doubt, where a poll costs nothing; 0: the
    pool's interval."""
    lost_after_s: float = 0.0
    """Seconds that a job must be missing in the batch system before it counts as lost; 0: what the
    pool's timing says."""

    starts_again: bool = False
    """The batch system may end a job by itself and start it again later: then the end of a script
    that got a TERM is not the job's end."""

    fetches_logs: bool = False
    """Logs have to be fetched from the batch system when they are requested."""

    runs_here: bool = False
    """Jobs run on this very machine, and need what is installed here."""

    def __init__(self, pool: Pool, ask: AskNats = not_connected) -> None:
        """Take the settings of a pool, and a function for requests on the connection to NATS."""
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
        """Submit a job, under its name; return its identity in the batch system.

        The job carries no script and no files: those are in the directory. What runs is
        ``bash <directory>/job.sh <directory> <spool>``, once. Raise ``NoRoom`` if no job is
        accepted now (the job stays first in our queue), ``SubmitRefused`` if this one never will
        be, ``SubmitUnclear`` if it may have been accepted.
        """

    @abstractmethod
    def find(self, names: Sequence[str]) -> dict[str, str]:
        """Return the identities of accepted jobs, whether they wait, run or have ended."""

    @abstractmethod
    def poll(self, refs: Sequence[JobRef]) -> Mapping[str, Observation]:
        """Query all of these jobs at once; return no observation of those that are unknown."""

    @abstractmethod
    def cancel(self, refs: Sequence[JobRef], kill: bool) -> None:
        """End jobs: with a TERM to the script, or, with ``kill``, everything at once.

        Repeating it does no harm, nor does a job that has ended or was never there.
        """

    def clean(self, refs: Sequence[JobRef]) -> set[str]:
        """Remove what ended jobs have left in the batch system; return the names of clean ones."""
        return {ref.name for ref in refs}

    def fetch_logs(self, name: str, container: str) -> bool:
        """Update the files of a container's log; return whether they are complete by now."""
        return True

    def tidy(self) -> None:
        """Remove what jobs without a directory have left: at the start, and now and then."""
        return

    def examine(self) -> Iterator[Finding]:
        """Yield findings for ``interlink-submitter check``, besides the capacity."""
        return iter(())

    @abstractmethod
    def capacity(self) -> dict[str, str]:
        """Return the resources offered to us: name -> quantity, as Kubernetes writes them."""
