"""Ends of pods that are Slurm's own: a controller that was killed forgets its last jobs.

It gives their numbers to others, or sends them to their nodes once more (docs/slurm.md). Its nodes,
and our submitter, say which jobs these are.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, NamedTuple

from templates.common.names import job_name
from tests.sites.slurm.site import SlurmSite

Json = dict[str, Any]

# It has forgotten the job, or had it aborted.
FORGOTTEN = re.compile(
    r"without a record of its end: Slurm: CANCELLED|vanished from the batch system at \S+: no end"
)
# It has ended the job: for another one of its number, or because its node was to start it again.
CANCELLED = "Cancelled: Slurm: CANCELLED"
SENT_TWICE = re.compile(r"Could not launch JobId=(\d+) ")
SUBMITTED = re.compile(r"job=(\S+): submitted (\d+)$", re.MULTILINE)


class Ended(NamedTuple):
    """A pod as it was in the end."""

    name: str
    uid: str
    phase: str
    code: int  # -1: there is none
    words: str  # why, when that is known


def ended(pod: Json) -> Ended:
    metadata, status = pod["metadata"], pod["status"]
    (container,) = status.get("containerStatuses") or [{"state": {}}]
    end = container["state"].get("terminated") or {}
    words = " ".join([status.get("message", ""), end.get("message", "")]).strip()
    phase, code = status.get("phase", ""), end.get("exitCode", -1)
    return Ended(metadata["name"], metadata["uid"], phase, code, words)


def there_twice(site: SlurmSite) -> set[str]:
    """Jobs of whose numbers there were two, or that a node was to start while it ran them."""
    folder = site.directory / "log"
    nodes = [path.read_text(errors="replace") for path in folder.glob("slurmd.*.log")]
    numbers = {number for log in nodes for number in SENT_TWICE.findall(log)}
    submitted = SUBMITTED.findall((folder / "submitter.login.out").read_text(errors="replace"))
    often = Counter(number for _, number in submitted)
    return {job for job, number in submitted if number in numbers or often[number] > 1}


def is_slurms_own(pod: Ended, twice: set[str]) -> bool:
    """Whether a pod has ended because Slurm forgot about its job."""
    if CANCELLED in pod.words and job_name(pod.name, pod.uid) in twice:
        return True
    return FORGOTTEN.search(pod.words) is not None
