"""Observations of jobs from their ads: of those in the queue, and of those that have left it."""

from __future__ import annotations

from typing import NamedTuple, Optional

from submitter.backends.base import Observation
from submitter.backends.htcondor.parsing import Ad
from submitter.backends.htcondor.spooling import is_incomplete
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


class PoolRules(NamedTuple):
    """The settings of a pool that its jobs were submitted with."""

    rerun: bool = False
    """Jobs may start a second time."""
    releases: int = 3
    """How often held jobs are released again."""
    shared: bool = True
    """Machines see the jobs' directories: a second start finds the first one there."""
    kept: bool = False
    """Removed jobs stay in the queue until their output was fetched."""

    def count_starts(self, ad: Ad) -> int:
        """Return how often a job has started, or may have: as many tries as were not refused."""
        started = ad.number("NumJobStarts")
        if self.shared:
            return started
        return max(started, abs(ad.number("NumShadowStarts") - ad.count_refusals()))


def observe(ad: Ad, rules: PoolRules) -> Optional[Observation]:
    """Return the observation of a job in the queue; None if its state is unknown."""
    state = STATES.get(ad.status)
    if state is None:
        return None
    if ad.status == IDLE:
        return _observe_idle(ad, rules)
    if ad.status == HELD:
        return _observe_held(ad, rules)
    is_gone = ad.status == REMOVED and not ad.text("RemoteHost")  # nothing of it runs any more
    if ad.status == COMPLETED or (rules.kept and is_gone):
        return observe_ended(ad)
    return Observation(STARTED)  # a removed one, too: its script is being terminated


def observe_ended(ad: Ad) -> Observation:
    """Return the observation of a job that is over: completed, or removed.

    A job that was removed after it had completed keeps its exit code.
    """
    if ad.status == COMPLETED or (ad.number("CompletionDate") and "ExitCode" in ad.values):
        code, shown = _read_exit(ad)
        at_ms = ad.number("CompletionDate") * 1000
        return Observation(ENDED, "", f"HTCondor: Completed: {shown}", exit_code=code, at_ms=at_ms)
    at_ms = ad.number("EnteredCurrentStatus") * 1000
    if ad.status == REMOVED:
        message = f"HTCondor: Removed: {ad.text('RemoveReason') or 'it names no reason'}"
        if is_incomplete(ad):
            return Observation(ENDED, "Lost", message, exit_code=1, at_ms=at_ms, lost=True)
        return Observation(ENDED, "Removed", message, exit_code=TERM_CODE, at_ms=at_ms)
    message = f"HTCondor: it left the queue in state {ad.status}"
    return Observation(ENDED, "Lost", message, exit_code=1, at_ms=at_ms, lost=True)


def _read_exit(ad: Ad) -> tuple[int, str]:
    if ad.values.get("ExitBySignal") is True:
        number = ad.number("ExitSignal")
        return 128 + number, f"signal {number}"
    return ad.number("ExitCode"), f"exit code {ad.number('ExitCode')}"


def _observe_idle(ad: Ad, rules: PoolRules) -> Observation:
    starts = rules.count_starts(ad)
    if not starts:
        reason = ad.text("LastRejMatchReason") or "Idle"
        return Observation(QUEUED, "Idle", f"HTCondor: {reason}")
    reason = ad.text("VacateReason") or "it lost its machine"
    if not rules.rerun:  # its requirements keep it from any machine
        at_ms = ad.number("EnteredCurrentStatus") * 1000
        message = f"HTCondor: Idle again: {reason}; this site runs no job a second time"
        return Observation(ENDED, "Evicted", message, exit_code=TERM_CODE, at_ms=at_ms)
    times = "once" if starts == 1 else f"{starts} times"
    return Observation(QUEUED, "Evicted", f"HTCondor: {reason} (started {times})", requeued=True)


def _observe_held(ad: Ad, rules: PoolRules) -> Observation:
    code = ad.number("HoldReasonCode")
    hold = HOLDS.get(code, UNKNOWN_HOLD)
    message = f"HTCondor: Held: {hold.meaning}: {ad.text('HoldReason') or 'it names no reason'}"
    action, starts = hold.action, rules.count_starts(ad)
    if action == RELEASED and starts and not rules.rerun:
        action = FAILED
    if action == RELEASED and ad.number("NumHolds") > rules.releases:
        action, message = FAILED, f"{message} (held {ad.number('NumHolds')} times)"
    if action == FAILED:
        at_ms = ad.number("EnteredCurrentStatus") * 1000
        return Observation(ENDED, hold.reason, message, exit_code=hold.exit_code, at_ms=at_ms)
    if action == RELEASED:
        message = f"{message}; it is released again"
    return Observation(QUEUED, "Held", message, requeued=bool(starts))
