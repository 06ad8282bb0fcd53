"""Jobs of a remote schedd: their files are spooled there, and their output is fetched.

Each transfer brings the whole output of a job. That of ended jobs is fetched before their end is
reported, or their last records would be lost; that of running ones for some of them in each poll.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Container, Iterable, Mapping, Sequence

from submitter.backends.htcondor.commands import HTCondorCommands
from submitter.backends.htcondor.parsing import Ad, match_clusters
from submitter.backends.htcondor.states import HELD, IDLE, REMOVED
from submitter.common.errors import BackendUnavailable, CommandFailed

logger = logging.getLogger(__name__)

FETCH_BATCH = 100  # running jobs whose output is fetched in one poll
FETCH_TIMEOUT_S = 600.0  # of the output of a job that has ended
REASON_PREFIX = "interlink: "  # of our own reasons for removing a job for good
INCOMPLETE = f"{REASON_PREFIX}not all of its files have arrived"
STAGING_FAILED = "Staging of job files failed"  # HTCondor's reason for the same
# True for jobs whose submission was never completed, as an expression of HTCondor.
NEVER_COMPLETE = f'regexp("^({INCOMPLETE}|{STAGING_FAILED})", RemoveReason ?: "")'
_SINCE = "EnteredCurrentStatus"
_ALL_FILES = ("SpooledOutputFiles", "undefined")
SPOOLING = 16  # the HoldReasonCode of a job whose files have not arrived yet
IS_SPOOLING = f"JobStatus == {HELD} && HoldReasonCode == {SPOOLING}"
RELEASE_TIMEOUT_S = 60  # a successful condor_submit releases its job at once


class OutputFetcher:
    """The output of a pool's jobs, and what this process has fetched of it."""

    def __init__(self, commands: HTCondorCommands, own_jobs: str, stream: bool) -> None:
        self._commands = commands
        self._own_jobs = own_jobs
        self._stream = stream
        self._since: dict[str, float] = {}  # ended jobs, since when
        self._fetched: set[str] = set()  # those of them whose output is here
        self._turn = 0

    def fetch(self, jobs: Sequence[tuple[Ad, str]], over: Container[str]) -> set[str]:
        """Fetch output; return the ended jobs whose output is still pending.

        ``jobs``: with the directory of each. ``over``: those that have ended, also by our rules:
        one whose schedd died just when it ended may have left its whole output.
        """
        now = time.monotonic()
        left = {ad.native: directory for ad, directory in jobs if ad.native in over}
        self._since = {n: at for n, at in self._since.items() if n in left}
        self._fetched &= left.keys()
        begun = {ad.native for ad, _ in jobs if ad.number("NumShadowStarts")}
        missing = {n: left[n] for n in left.keys() & begun - self._fetched}
        for native in missing:
            self._since.setdefault(native, now)
        if missing and self._transfer(missing, ended=True):
            self._fetched.update(missing)
        if self._stream:
            running = {ad.native: directory for ad, directory in jobs if _has_machine(ad)}
            self._fetch_running({n: folder for n, folder in running.items() if n not in over})
        late = [native for native in missing if native not in self._fetched]
        return {native for native in late if now - self._since[native] < FETCH_TIMEOUT_S}

    def remove_stuck(self, jobs: Iterable[Ad]) -> None:
        """Remove jobs that were submitted and would wait for their files for ever.

        Their schedd died after condor_submit had succeeded, and before it had released them.
        """
        now = time.time()
        stuck = [
            ad.native
            for ad in jobs
            if ad.status == HELD
            and is_incomplete(ad)
            and now - ad.number(_SINCE) > RELEASE_TIMEOUT_S
        ]
        if not stuck:
            return
        rested = f"time() - {_SINCE} > {RELEASE_TIMEOUT_S}"
        constraint = f"{self._own_jobs} && {match_clusters(stuck)} && {IS_SPOOLING} && {rested}"
        try:
            self._commands.run("condor_rm", ["-reason", INCOMPLETE, "-constraint", constraint])
        except (CommandFailed, BackendUnavailable) as error:
            logger.warning("%d jobs without their files stay in the queue: %s", len(stuck), error)

    def _fetch_running(self, running: Mapping[str, str]) -> None:
        """Fetch the output so far of some of the running jobs."""
        if not running:
            return
        natives = list(running)
        start = self._turn % len(natives)
        some = [*natives[start:], *natives[:start]][:FETCH_BATCH]
        self._turn = start + len(some)
        self._transfer({native: running[native] for native in some})

    def _transfer(self, jobs: Mapping[str, str], ended: bool = False) -> bool:
        """Fetch into the directories that exist; return whether that succeeded."""
        here = {native: directory for native, directory in jobs.items() if _exists(directory)}
        if not here:
            return True
        constraint = f"{self._own_jobs} && {match_clusters(here)}"
        try:
            if ended:  # or what was streamed would not count as output
                self._commands.run("condor_qedit", ["-constraint", constraint, *_ALL_FILES])
            self._commands.run("condor_transfer_data", ["-constraint", constraint])
        except (CommandFailed, BackendUnavailable) as error:
            logger.warning("what %d jobs have left is not fetched: %s", len(here), error)
            return False
        finally:
            for directory in here.values():
                if not _exists(directory):  # it was, before condor_transfer_data wrote into it
                    shutil.rmtree(directory, ignore_errors=True)
        return True


def _exists(directory: str) -> bool:
    return os.path.exists(f"{directory}/request.json")


def is_incomplete(ad: Ad) -> bool:
    """Return whether some of a job's files have not arrived."""
    if ad.status == REMOVED:
        return ad.text("RemoveReason").startswith((INCOMPLETE, STAGING_FAILED))
    return ad.status == HELD and ad.number("HoldReasonCode") == SPOOLING


def _has_machine(ad: Ad) -> bool:
    return ad.status != IDLE and ad.number("NumShadowStarts") > 0
