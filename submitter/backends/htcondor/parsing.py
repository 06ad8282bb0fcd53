"""Parsers of the output of HTCondor's programs: ads of jobs and machines, and match analyses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Optional

from submitter.backends.htcondor.states import REFUSALS
from submitter.common.errors import BackendUnavailable

# Attributes queried from condor_q and condor_history, besides those of further resources.
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
    """The ad of one job."""

    native: str
    name: str
    status: int
    values: Mapping[str, Any]

    def number(self, name: str) -> int:
        """Return a numeric attribute; 0 if it is not set."""
        value = self.values.get(name)
        return int(value) if isinstance(value, (int, float)) else 0

    def text(self, name: str) -> str:
        """Return a text attribute; empty if it is not set."""
        value = self.values.get(name)
        return value if isinstance(value, str) else ""

    def count_refusals(self) -> int:
        """Return how often a machine that was to run the job refused to start it."""
        counts = self.values.get("NumVacatesByReason")
        if not isinstance(counts, dict):
            return 0
        return sum(count for name in REFUSALS if isinstance(count := counts.get(name), int))


def parse_native(output: str) -> Optional[str]:
    """Return the number of an accepted job in the output of ``condor_submit -terse``."""
    found = _SUBMITTED.search(output)
    return found[1] if found else None


def parse_table(output: str) -> list[dict[str, Any]]:
    """Parse the output of ``-json``: an empty result prints nothing at all."""
    if not output.strip():
        return []
    try:
        rows = json.loads(output)
    except ValueError:
        raise BackendUnavailable("what HTCondor says cannot be read") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise BackendUnavailable("what HTCondor says is no list")
    return rows


def parse_ads(output: str) -> list[Ad]:
    """Parse those jobs of ``condor_q`` or ``condor_history`` that are ours."""
    found = []
    for row in parse_table(output):
        numbers = [row.get(key) for key in ("ClusterId", "ProcId", "JobStatus")]
        name = row.get("InterlinkJob")
        if isinstance(name, str) and all(type(number) is int for number in numbers):
            cluster, process, status = numbers
            found.append(Ad(f"{cluster}.{process}", name, int(status or 0), row))
    return found


def is_native(text: str) -> bool:
    """Return whether the text is a job's number, as condor_rm takes it."""
    return re.fullmatch(r"[0-9]{1,10}\.[0-9]{1,10}", text) is not None


def match_clusters(natives: Iterable[str]) -> str:
    """Return an expression that is true for these jobs; each of ours is a cluster of its own."""
    numbers = sorted({int(native.partition(".")[0]) for native in natives if is_native(native)})
    return f"member(ClusterId, {{{', '.join(map(str, numbers))}}})"


def parse_unmet(output: str) -> list[str]:
    """Return the requirements that no machine fulfils, in the output of ``-better-analyze``."""
    found = (_CONDITION.match(line) for line in output.splitlines())
    return [one["text"].strip() for one in found if one and one["slots"] == "0"]
