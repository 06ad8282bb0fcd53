"""All states of a Slurm job and the reasons why it waits, by the names of the manual (squeue(1)).

Text after a name in the same field (``CANCELLED by 1000``) is ignored. A state that is not in the
table changes nothing: the job keeps its previous state.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple, Optional

from templates.job.status import ENDED, QUEUED, STARTED

OOM_CODE = 137
TERM_CODE = 143


class SlurmState(NamedTuple):
    """The meaning of a Slurm state."""

    phase: str
    reason: str = ""
    """One word for the pod: why it waits, or what ended it."""
    meaning: str = ""
    """As the manual explains it."""
    exit_code: int = 1
    """Of a job that has ended and left no exit code behind."""
    lost: bool = False
    """The job has ended by a failure of Slurm, not by its own."""


STATES: Mapping[str, SlurmState] = {
    # It waits.
    "PENDING": SlurmState(QUEUED),
    "CONFIGURING": SlurmState(QUEUED, "Configuring", "its nodes are being made ready"),
    "POWER_UP_NODE": SlurmState(QUEUED, "Configuring", "its nodes are being switched on"),
    "REQUEUED": SlurmState(QUEUED, "Requeued", "it is being put back into the queue"),
    "REQUEUE_FED": SlurmState(QUEUED, "Requeued", "a federation puts it back into the queue"),
    "REQUEUE_HOLD": SlurmState(QUEUED, "Held", "it was put back into the queue, and is held there"),
    "SPECIAL_EXIT": SlurmState(QUEUED, "Held", "it was put back into the queue, marked and held"),
    "RESV_DEL_HOLD": SlurmState(QUEUED, "Held", "its reservation was deleted"),
    # It has nodes.
    "RUNNING": SlurmState(STARTED),
    "COMPLETING": SlurmState(STARTED),
    "EXPEDITING": SlurmState(STARTED),
    "RESIZING": SlurmState(STARTED),
    "SIGNALING": SlurmState(STARTED),
    "STAGE_OUT": SlurmState(STARTED),
    "STOPPED": SlurmState(STARTED),
    "SUSPENDED": SlurmState(STARTED),
    # It is over.
    "COMPLETED": SlurmState(ENDED, "", "all of its processes ended well", 0),
    "FAILED": SlurmState(ENDED, "", "it ended with an exit code other than 0"),
    "CANCELLED": SlurmState(
        ENDED, "Cancelled", "a user or an administrator cancelled it", TERM_CODE
    ),
    "TIMEOUT": SlurmState(ENDED, "TimeLimit", "it reached its time limit", TERM_CODE),
    "DEADLINE": SlurmState(ENDED, "Deadline", "it could not end before its deadline", TERM_CODE),
    "OUT_OF_MEMORY": SlurmState(ENDED, "OOMKilled", "it used more memory than it had", OOM_CODE),
    "PREEMPTED": SlurmState(ENDED, "Preempted", "a job that comes first took its place", TERM_CODE),
    "NODE_FAIL": SlurmState(ENDED, "NodeFail", "one of its nodes failed", lost=True),
    "BOOT_FAIL": SlurmState(ENDED, "NodeFail", "one of its nodes could not be started", lost=True),
    "LAUNCH_FAILED": SlurmState(
        ENDED, "LaunchFailed", "it could not be launched on its nodes", lost=True
    ),
    "RECONFIG_FAIL": SlurmState(
        ENDED, "NodeFail", "one of its nodes could not be set up for it", lost=True
    ),
    "REVOKED": SlurmState(ENDED, "Revoked", "another cluster of the federation has started it"),
}
ACTIVE = frozenset(name for name, state in STATES.items() if state.phase == STARTED)

# Reasons for which a job waits: of the 200 of Slurm those that users can do something about.
REASONS: Mapping[str, str] = {
    "Priority": "jobs with a higher priority come first",
    "Resources": "it waits until enough resources are free",
    "Dependency": "a job that it depends on has not ended",
    "DependencyNeverSatisfied": "a job that it depends on did not end as it should",
    "BeginTime": "its earliest start time lies ahead",
    "Licenses": "it waits for a license",
    "Reservation": "it waits for its reservation",
    "ReservationDeleted": "its reservation was deleted",
    "InvalidAccount": "its account is not valid",
    "InvalidQOS": "its QoS is not valid",
    "JobHeldUser": "it is held by its user",
    "JobHeldAdmin": "it is held by an administrator",
    "JobLaunchFailure": "it could not be launched",
    "NodeDown": "a node that it needs is down",
    "PartitionDown": "its partition takes jobs, and starts none",
    "PartitionInactive": "its partition is inactive",
    "PartitionNodeLimit": "its partition does not have, or give, so many nodes",
    "PartitionTimeLimit": "its time limit is longer than its partition allows",
    "ReqNodeNotAvail": "a node that it needs is not available",
    "Nodes": "the nodes that it needs are down, drained or reserved",
    "Cleaning": "it was put back into the queue, and its first start is still being cleaned up",
    "SystemFailure": "Slurm, a file system or the network has failed",
    "FrontEndDown": "no front end can run it",
    "BadConstraints": "no node can ever fulfil what it asks for",
}
_GROUPS = (
    ("Assoc", "a limit of its account or user is reached"),
    ("QOS", "a limit of its QoS is reached"),
    ("MaxNodePerAccount", "a limit of its account is reached"),
)
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_NOTHING = ("", "None", "(null)", "NULL")


def find_state(text: str) -> Optional[SlurmState]:
    """Return the meaning of a state; None if it is unknown."""
    return STATES.get(first_word(text))


def first_word(text: str) -> str:
    """Return the name of the state, without the text after it."""
    return re.split(r"[\s+]", text.strip(), maxsplit=1)[0]


def describe_waiting(text: str) -> tuple[str, str]:
    """Return one word and one line for the reason for which a job waits, as squeue prints it."""
    text = text.strip()
    if text in _NOTHING:
        return "", ""
    if "held" in text.lower():
        meaning = REASONS.get(text, "it is held")
        return "Held", f"Slurm: {text}: {meaning}"
    found = _WORD.match(text)
    word = found[0] if found else ""
    meaning = REASONS.get(word, "")
    if not meaning:
        meaning = next((text for start, text in _GROUPS if word.startswith(start)), "")
    return word, f"Slurm: {text}: {meaning}" if meaning else f"Slurm: {text}"
