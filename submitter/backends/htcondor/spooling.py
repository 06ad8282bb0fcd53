"""Jobs of a schedd elsewhere: their files are kept there, and what they leave is fetched.

A job's output comes whole each time. Of those that have ended it comes before their end is told, or
their last words would be lost; of those that run, some in each round.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Container, Iterable, Mapping, Sequence

from submitter.backends.htcondor.commands import HTCondorCommands
from submitter.backends.htcondor.parsing import Ad, among
from submitter.backends.htcondor.states import HELD, IDLE, REMOVED
from submitter.common.errors import BackendUnavailable, CommandFailed

logger = logging.getLogger(__name__)

AT_ONCE = 100  # running jobs whose output is fetched in one round
PATIENCE_S = 600.0  # how long the output of a job that has ended is waited for
OURS = "interlink: "  # how reasons begin for which we take a job out of the queue for good
HALF = f"{OURS}not all of its files have arrived"
STAGING = "Staging of job files failed"  # for which HTCondor does that itself
# Of jobs that were never handed over, in HTCondor's language.
NEVER_WHOLE = f'regexp("^({HALF}|{STAGING})", RemoveReason ?: "")'
_SINCE = "EnteredCurrentStatus"
_ALL_FILES = ("SpooledOutputFiles", "undefined")
SPOOLING = 16  # the HoldReasonCode of a job whose files are on their way
SPOOLS = f"JobStatus == {HELD} && HoldReasonCode == {SPOOLING}"
RELEASED_S = 60  # after condor_submit has ended well its job is released at once


class OutputFetcher:
    """What of a pool's jobs has been fetched, as one process has seen it."""

    def __init__(self, commands: HTCondorCommands, mine: str, stream: bool) -> None:
        self._commands = commands
        self._mine = mine
        self._stream = stream
        self._since: dict[str, float] = {}  # ended ones, since when
        self._fetched: set[str] = set()  # those of them that are here
        self._turn = 0

    def fetch(self, jobs: Sequence[tuple[Ad, str]], over: Container[str]) -> set[str]:
        """Fetch what there is; the jobs that have ended and of which it is still to come.

        ``jobs``: with the directory of each. ``over``: those that have ended, also by our rules:
        one whose schedd died just when it ended may have left all that it had to say.
        """
        now = time.monotonic()
        left = {ad.native: place for ad, place in jobs if ad.native in over}
        self._since = {n: at for n, at in self._since.items() if n in left}
        self._fetched &= left.keys()
        begun = {ad.native for ad, _ in jobs if ad.number("NumShadowStarts")}
        missing = {n: left[n] for n in left.keys() & begun - self._fetched}
        for native in missing:
            self._since.setdefault(native, now)
        if missing and self._brings(missing, ended=True):
            self._fetched.update(missing)
        if self._stream:
            speaking = {ad.native: place for ad, place in jobs if _has_machine(ad)}
            self._follow({n: place for n, place in speaking.items() if n not in over})
        late = [native for native in missing if native not in self._fetched]
        return {native for native in late if now - self._since[native] < PATIENCE_S}

    def give_up(self, jobs: Iterable[Ad]) -> None:
        """Take those out of the queue that were handed over, and wait for their files for ever.

        Their schedd died when condor_submit had its word, and before it had released them.
        """
        now = time.time()
        stuck = [
            ad.native
            for ad in jobs
            if ad.status == HELD and is_half(ad) and now - ad.number(_SINCE) > RELEASED_S
        ]
        if not stuck:
            return
        constraint = (
            f"{self._mine} && {among(stuck)} && {SPOOLS} && time() - {_SINCE} > {RELEASED_S}"
        )
        try:
            self._commands.run("condor_rm", ["-reason", HALF, "-constraint", constraint])
        except (CommandFailed, BackendUnavailable) as error:
            logger.warning("%d jobs without their files stay in the queue: %s", len(stuck), error)

    def _follow(self, running: Mapping[str, str]) -> None:
        """The output of those that run, as far as it goes."""
        if not running:
            return
        natives = list(running)
        start = self._turn % len(natives)
        some = [*natives[start:], *natives[:start]][:AT_ONCE]
        self._turn = start + len(some)
        self._brings({native: running[native] for native in some})

    def _brings(self, jobs: Mapping[str, str], ended: bool = False) -> bool:
        """A directory that was removed by hand is not made again."""
        here = {native: place for native, place in jobs.items() if _is_there(place)}
        if not here:
            return True
        constraint = f"{self._mine} && {among(here)}"
        try:
            if ended:  # or what was streamed would not count as output
                self._commands.run("condor_qedit", ["-constraint", constraint, *_ALL_FILES])
            self._commands.run("condor_transfer_data", ["-constraint", constraint])
        except (CommandFailed, BackendUnavailable) as error:
            logger.warning("what %d jobs have left is not fetched: %s", len(here), error)
            return False
        finally:
            for place in here.values():
                if not _is_there(place):  # it was, before condor_transfer_data wrote into it
                    shutil.rmtree(place, ignore_errors=True)
        return True


def _is_there(place: str) -> bool:
    return os.path.exists(f"{place}/request.json")


def is_half(ad: Ad) -> bool:
    """Whether a job's files have not all arrived."""
    if ad.status == REMOVED:
        return ad.text("RemoveReason").startswith((HALF, STAGING))
    return ad.status == HELD and ad.number("HoldReasonCode") == SPOOLING


def _has_machine(ad: Ad) -> bool:
    return ad.status != IDLE and ad.number("NumShadowStarts") > 0
