"""What an ad of a job's means: of one in the queue, and of one that has left it."""

from __future__ import annotations

from typing import NamedTuple, Optional

from submitter.backends.base import Observation
from submitter.backends.htcondor.parsing import Ad
from submitter.backends.htcondor.spooling import is_half
from submitter.backends.htcondor.states import (
    COMPLETED,
    FAILED,
    HELD,
    HOLDS,
    IDLE,
    RELEASED,
    REMOVED,
    STATES,
    TERM_CODE,
    UNKNOWN_HOLD,
)
from templates.job.status import ENDED, QUEUED, STARTED


class Terms(NamedTuple):
    """What a pool's jobs were submitted under."""

    rerun: bool = False
    """Whether they may start a second time."""
    releases: int = 3
    """How often they are released again."""
    shared: bool = True
    """Whether machines see their directories: two starts of one would meet there."""
    kept: bool = False
    """Whether removed ones stay in the queue until what they left was fetched."""

    def starts(self, ad: Ad) -> int:
        """How often a job has started, or may have; refusals have to be as many as tries."""
        started = ad.number("NumJobStarts")
        if self.shared:
            return started
        return max(started, abs(ad.number("NumShadowStarts") - ad.refusals()))


def observe(ad: Ad, terms: Terms) -> Optional[Observation]:
    """Of a job in the queue; None for a state that nobody knows here."""
    state = STATES.get(ad.status)
    if state is None:
        return None
    if ad.status == IDLE:
        return _idle(ad, terms)
    if ad.status == HELD:
        return _held(ad, terms)
    is_gone = ad.status == REMOVED and not ad.text("RemoteHost")  # nothing of it runs any more
    if ad.status == COMPLETED or (terms.kept and is_gone):
        return ended(ad)
    return Observation(STARTED)  # a removed one, too: its script is being told to end


def ended(ad: Ad) -> Observation:
    """Of a job that is over: finished, or removed.

    One that was taken out of the queue after it had finished is both, and keeps the end it had.
    """
    if ad.status == COMPLETED or (ad.number("CompletionDate") and "ExitCode" in ad.values):
        code, how = _exit(ad)
        at_ms = ad.number("CompletionDate") * 1000
        return Observation(ENDED, "", f"HTCondor: Completed: {how}", exit_code=code, at_ms=at_ms)
    at_ms = ad.number("EnteredCurrentStatus") * 1000
    if ad.status == REMOVED:
        words = f"HTCondor: Removed: {ad.text('RemoveReason') or 'it names no reason'}"
        if is_half(ad):
            return Observation(ENDED, "Lost", words, exit_code=1, at_ms=at_ms, lost=True)
        return Observation(ENDED, "Removed", words, exit_code=TERM_CODE, at_ms=at_ms)
    words = f"HTCondor: it left the queue in state {ad.status}"
    return Observation(ENDED, "Lost", words, exit_code=1, at_ms=at_ms, lost=True)


def _exit(ad: Ad) -> tuple[int, str]:
    if ad.values.get("ExitBySignal") is True:
        number = ad.number("ExitSignal")
        return 128 + number, f"signal {number}"
    return ad.number("ExitCode"), f"exit code {ad.number('ExitCode')}"


def _idle(ad: Ad, terms: Terms) -> Observation:
    starts = terms.starts(ad)
    if not starts:
        told = ad.text("LastRejMatchReason")
        return Observation(QUEUED, "Idle", f"HTCondor: {told}" if told else "HTCondor: Idle")
    why = ad.text("VacateReason") or "it lost its machine"
    if not terms.rerun:  # its requirements keep it from any machine
        at_ms = ad.number("EnteredCurrentStatus") * 1000
        words = f"HTCondor: Idle again: {why}; this site runs no job a second time"
        return Observation(ENDED, "Evicted", words, exit_code=TERM_CODE, at_ms=at_ms)
    times = "once" if starts == 1 else f"{starts} times"
    return Observation(QUEUED, "Evicted", f"HTCondor: {why} (started {times})", requeued=True)


def _held(ad: Ad, terms: Terms) -> Observation:
    code = ad.number("HoldReasonCode")
    hold = HOLDS.get(code, UNKNOWN_HOLD)
    words = f"HTCondor: Held: {hold.meaning}: {ad.text('HoldReason') or 'it names no reason'}"
    action, starts = hold.action, terms.starts(ad)
    if action == RELEASED and starts and not terms.rerun:
        action = FAILED
    if action == RELEASED and ad.number("NumHolds") > terms.releases:
        action, words = FAILED, f"{words} (held {ad.number('NumHolds')} times)"
    if action == FAILED:
        at_ms = ad.number("EnteredCurrentStatus") * 1000
        return Observation(ENDED, hold.reason, words, exit_code=hold.exit_code, at_ms=at_ms)
    if action == RELEASED:
        words = f"{words}; it is released again"
    return Observation(QUEUED, "Held", words, requeued=bool(starts))
