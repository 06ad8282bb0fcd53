"""All states of an HTCondor job, and all reasons for which one is held, by their numbers.

A hold has one of three consequences: after a temporary error HTCondor releases the job again (by
the job's own ``periodic_release``, so that it happens without us, too); after a permanent one the
job has ended; or a user holds the job, and it waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from templates.job.status import ENDED, QUEUED, STARTED

OOM_CODE = 137
TERM_CODE = 143

IDLE, RUNNING, REMOVED, COMPLETED, HELD, TRANSFERRING, SUSPENDED = range(1, 8)

RELEASED = "released"
FAILED = "failed"
WAITS = "waits"


class HTCondorState(NamedTuple):
    """The meaning of an HTCondor state (JobStatus)."""

    name: str
    phase: str
    meaning: str


STATES: Mapping[int, HTCondorState] = {
    IDLE: HTCondorState(
        "Idle", QUEUED, "it waits for a machine, or, after an eviction, for another one"
    ),
    RUNNING: HTCondorState("Running", STARTED, "it has a machine"),
    REMOVED: HTCondorState(
        "Removed", ENDED, "somebody removed it; while its script ends it counts as started"
    ),
    COMPLETED: HTCondorState("Completed", ENDED, "its script has ended"),
    HELD: HTCondorState("Held", QUEUED, "see below"),
    TRANSFERRING: HTCondorState("Transferring Output", STARTED, "its files are on their way back"),
    SUSPENDED: HTCondorState("Suspended", STARTED, "its machine has stopped it for a while"),
}


class Hold(NamedTuple):
    """The consequence of a reason (HoldReasonCode) for which HTCondor holds a job."""

    action: str
    meaning: str
    reason: str = "Held"
    """Why the job has ended, if it has: one word."""
    exit_code: int = 1


HOLDS: Mapping[int, Hold] = {
    0: Hold(FAILED, "HTCondor names no reason"),
    1: Hold(WAITS, "a user or an administrator holds it"),
    2: Hold(FAILED, "the grid reported an error"),
    3: Hold(FAILED, "its own periodic_hold holds it"),
    4: Hold(WAITS, "its credential cannot be used"),
    5: Hold(FAILED, "one of its policy expressions has no value"),
    6: Hold(RELEASED, "its machine could not start it"),
    7: Hold(RELEASED, "its output file could not be opened"),
    8: Hold(RELEASED, "its input file could not be opened"),
    9: Hold(RELEASED, "its output stream could not be opened"),
    10: Hold(RELEASED, "its input stream could not be opened"),
    11: Hold(RELEASED, "a transfer of files was broken off"),
    12: Hold(RELEASED, "its files could not be brought back"),
    13: Hold(RELEASED, "its files could not be sent"),
    14: Hold(RELEASED, "its directory cannot be seen where it was to run"),
    15: Hold(WAITS, "it was submitted on hold"),
    16: Hold(WAITS, "its files are on their way to the access point"),
    17: Hold(FAILED, "it does not fit the access point's version"),
    18: Hold(RELEASED, "a transfer of files was not let begin"),
    19: Hold(RELEASED, "the hook that prepares it failed on its machine"),
    20: Hold(FAILED, "the time for which it was deferred has passed"),
    21: Hold(FAILED, "its machine held it, by a rule of its own"),
    22: Hold(RELEASED, "its event log could not be written"),
    23: Hold(RELEASED, "its user's account could not be reached"),
    24: Hold(FAILED, "no shadow fits it"),
    25: Hold(FAILED, "its times are wrong"),
    26: Hold(FAILED, "a rule of the access point holds it (SYSTEM_PERIODIC_HOLD)"),
    27: Hold(FAILED, "a rule of the access point has no value for it"),
    28: Hold(RELEASED, "its files could not be given to its user"),
    29: Hold(RELEASED, "its files could not be given to its user"),
    30: Hold(RELEASED, "its files could not be taken back from its user"),
    31: Hold(RELEASED, "its files could not be taken back from its user"),
    32: Hold(FAILED, "its files are larger than what may be sent"),
    33: Hold(FAILED, "its files are larger than what may be brought back"),
    34: Hold(FAILED, "it used more than it had asked for", "OOMKilled", OOM_CODE),
    35: Hold(FAILED, "its image cannot be used"),
    36: Hold(RELEASED, "its checkpoint could not be written"),
    **{code: Hold(FAILED, "a cloud reported an error") for code in range(37, 43)},
    43: Hold(FAILED, "its pre-script failed"),
    44: Hold(FAILED, "its post-script failed"),
    45: Hold(RELEASED, "Singularity does not work on its machine"),
    46: Hold(FAILED, "it reached its time limit", "TimeLimit", TERM_CODE),
    47: Hold(FAILED, "it reached its limit for running", "TimeLimit", TERM_CODE),
    48: Hold(RELEASED, "a hook of the access point failed"),
}
UNKNOWN_HOLD = Hold(WAITS, "HTCondor holds it for a reason that is not known here")
TEMPORARY = tuple(code for code, hold in HOLDS.items() if hold.action == RELEASED)

# The names under which HTCondor 25 counts (NumVacatesByReason) that a machine refused to start a
# job that was matched to it. Nothing of such a job has run: the starter gets the job and its files
# from the shadow, and the shadow has ended with this reason.
REFUSALS = (
    "FailedToActivateClaim",
    "ActivationRefusedBadRequest",
    "ActivationRefusedNoMatch",
    "ActivationRefusedStillCleaning",
    "ActivationRefusedWorklifeExpired",
    "ActivationRefusedPreempted",
    "ActivationRefusedBroken",
    "ActivationRefusedNotIdle",
    "ActivationRefusedUnclaimed",
    "ActivationRefusedClaimNotFound",
    "ActivationRefusedOldClaim",
    "ActivationRefusedUnhealthy",
)
