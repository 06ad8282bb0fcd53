"""What HTCondor's programs print, as values: ads of jobs and of machines, and match analyses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Optional

from submitter.backends.htcondor.states import REFUSALS
from submitter.common.errors import BackendUnavailable

# Of condor_q and condor_history: what is asked of every job, besides its further resources.
ATTRIBUTES = (
    "ClusterId",
    "ProcId",
    "InterlinkJob",
    "JobStatus",
    "NumJobStarts",
    "NumShadowStarts",
    "NumVacatesByReason",
    "NumHolds",
    "HoldReason",
    "HoldReasonCode",
    "HoldReasonSubCode",
    "LastRejMatchReason",
    "ExitCode",
    "ExitBySignal",
    "ExitSignal",
    "CompletionDate",
    "EnteredCurrentStatus",
    "RemoveReason",
    "RemoteHost",
    "VacateReason",
    "RequestCpus",
    "RequestMemory",
)
MACHINE_ATTRIBUTES = (
    "Name",
    "PartitionableSlot",
    "State",
    "Cpus",
    "Memory",
    "TotalSlotCpus",
    "TotalSlotMemory",
)
_SUBMITTED = re.compile(r"^([0-9]+\.[0-9]+) - [0-9]+\.[0-9]+$", re.MULTILINE)
_CONDITION = re.compile(r"^\[[0-9]+\]\s+(?P<slots>[0-9]+)\s+(?P<text>\S.*)$")


class Ad(NamedTuple):
    """What is said of one job."""

    native: str
    name: str
    status: int
    values: Mapping[str, Any]

    def number(self, name: str) -> int:
        """The value of an attribute that is a whole number; 0 when it has none."""
        value = self.values.get(name)
        return int(value) if isinstance(value, (int, float)) else 0

    def text(self, name: str) -> str:
        """The value of an attribute that is a text; empty when it has none."""
        value = self.values.get(name)
        return value if isinstance(value, str) else ""

    def refusals(self) -> int:
        """How often a machine was to run it and would not begin."""
        counts = self.values.get("NumVacatesByReason")
        if not isinstance(counts, dict):
            return 0
        return sum(count for name in REFUSALS if isinstance(count := counts.get(name), int))


def native_of(output: str) -> Optional[str]:
    """The number of a job that was accepted, of ``condor_submit -terse``."""
    found = _SUBMITTED.search(output)
    return found[1] if found else None


def table(output: str) -> list[dict[str, Any]]:
    """Of ``-json``: nothing at all is printed when there is nothing to say."""
    if not output.strip():
        return []
    try:
        read = json.loads(output)
    except ValueError:
        raise BackendUnavailable("what HTCondor says cannot be read") from None
    if not isinstance(read, list) or not all(isinstance(row, dict) for row in read):
        raise BackendUnavailable("what HTCondor says is no list")
    return read


def ads(output: str) -> list[Ad]:
    """The jobs of ``condor_q`` and ``condor_history`` that are ours."""
    found = []
    for row in table(output):
        numbers = [row.get(key) for key in ("ClusterId", "ProcId", "JobStatus")]
        name = row.get("InterlinkJob")
        if isinstance(name, str) and all(type(number) is int for number in numbers):
            cluster, process, status = numbers
            found.append(Ad(f"{cluster}.{process}", name, int(status or 0), row))
    return found


def is_native(text: str) -> bool:
    """Whether this is a job's number, as condor_rm takes it."""
    return re.fullmatch(r"[0-9]{1,10}\.[0-9]{1,10}", text) is not None


def among(natives: Iterable[str]) -> str:
    """An expression that is true of these jobs; all of ours are alone in their clusters."""
    numbers = sorted({int(native.partition(".")[0]) for native in natives if is_native(native)})
    return f"member(ClusterId, {{{', '.join(map(str, numbers))}}})"


def unmet(output: str) -> list[str]:
    """The conditions of a job's requirements that no machine fulfils, of ``-better-analyze``."""
    found = (_CONDITION.match(line) for line in output.splitlines())
    return [one["text"].strip() for one in found if one and one["slots"] == "0"]
