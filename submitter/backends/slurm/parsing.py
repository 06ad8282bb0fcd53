"""Parsers of the output of Slurm's programs, one for each query.

Fields of fixed width (``-O``) are the same in all versions, and none of ours can overflow: names
and numbers are short, and of a reason its beginning is enough. sacct separates its fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Optional

# Of squeue -O: field -> width.
_QUEUE = {"JobID": 24, "State": 20, "RestartCnt": 12, "Name": 80, "Reason": 100}
QUEUE_FORMAT = ",".join(f"{name}:{width}" for name, width in _QUEUE.items())
_PAST = {**_QUEUE, "exit_code": 20, "EndTime": 32, "StartTime": 32, "TimeLimit": 20}
PAST_FORMAT = ",".join(f"{name}:{width}" for name, width in _PAST.items())
_USED = {"NumCPUs": 16, "tres-alloc": 300}
USED_FORMAT = ",".join(f"{name}:{width}" for name, width in _USED.items())
_NODES = {
    "NodeHost": 80,
    "StateLong": 32,
    "CPUsState": 40,
    "Memory": 20,
    "AllocMem": 20,
    "Gres": 300,
    "GresUsed": 300,
}
NODES_FORMAT = ",".join(f"{name}:{width}" for name, width in _NODES.items())
ACCOUNTING_FORMAT = "JobIDRaw,JobName,State,ExitCode,End,Start,Timelimit"
TIMES = {"SLURM_TIME_FORMAT": "%s"}  # so that times are seconds since 1970, in every time zone

_SUBMITTED = re.compile(r"^([0-9]+)(?:;\S+)?$", re.MULTILINE)
_LONG_SUBMITTED = re.compile(r"Submitted batch job ([0-9]+)")
_GRES = re.compile(
    r"(?P<name>[^:(),=]+)(?::(?P<type>[^:(),=]+?))?[:=](?P<count>[0-9]+)(?P<unit>[KMG]?)"
)
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}


class Row(NamedTuple):
    """One job in the output of squeue or sacct."""

    number: str
    name: str
    state: str
    reason: str = ""
    restarts: int = 0
    exit_code: str = ""  # EXIT:SIGNAL
    end_s: int = 0
    start_s: int = 0
    limit_s: int = 0  # 0: none, or not known


class Node(NamedTuple):
    """One node in the output of sinfo; amounts of memory in MiB."""

    name: str
    state: str
    cpus: int
    idle_cpus: int
    memory: int
    allocated_memory: int
    gres: Mapping[str, int]
    used_gres: Mapping[str, int]


def _split_columns(line: str, widths: Mapping[str, int]) -> Optional[list[str]]:
    """Return the fields of a line; None if it is too short to hold them all."""
    found, start = [], 0
    for width in widths.values():
        found.append(line[start : start + width].strip())
        start += width
    return found if len(line) > start - width else None


def parse_job_number(output: str) -> Optional[str]:
    """Return the number of an accepted job; sbatch's plugins may print text around it."""
    found = _SUBMITTED.search(output) or _LONG_SUBMITTED.search(output)
    return found[1] if found else None


def parse_queue(output: str) -> Iterator[Row]:
    """Parse ``squeue -O QUEUE_FORMAT``."""
    for line in output.splitlines():
        fields = _split_columns(line, _QUEUE)
        if fields is not None and fields[0].isdigit():
            number, state, restarts, name, reason = fields
            yield Row(number, name, state, reason, _parse_int(restarts))


def parse_past(output: str) -> Iterator[Row]:
    """Parse ``squeue -t all -O PAST_FORMAT``."""
    for line in output.splitlines():
        fields = _split_columns(line, _PAST)
        if fields is not None and fields[0].isdigit():
            number, state, restarts, name, reason, exit_code, *times = fields
            count = _parse_int(restarts)
            yield Row(number, name, state, reason, count, exit_code, *_parse_times(*times))


def parse_accounting(output: str) -> Iterator[Row]:
    """Parse ``sacct -P -o ACCOUNTING_FORMAT``."""
    for line in output.splitlines():
        fields = line.split("|")
        if len(fields) == 7 and fields[0].isdigit():
            number, name, state, exit_code, *times = fields
            yield Row(number, name, state, "", 0, exit_code, *_parse_times(*times))


def _parse_times(end: str, start: str, limit: str) -> tuple[int, int, int]:
    return _parse_int(end), _parse_int(start), parse_time_limit(limit) or 0


def parse_exit_code(text: str) -> int:
    """Return ``EXIT:SIGNAL`` as a shell's exit code; 0 if there is none."""
    code, _, number = text.partition(":")
    if _parse_int(number):
        return 128 + _parse_int(number)
    return _parse_int(code) % 256


def _parse_int(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0


# --- nodes, and what runs on them ----------------------------------------------------------------


def parse_nodes(output: str) -> dict[str, Node]:
    """Parse ``sinfo -N -O NODES_FORMAT``: each node once, whatever partitions it is in."""
    found = {}
    for line in output.splitlines():
        fields = _split_columns(line, _NODES)
        if fields is None or fields[2].count("/") != 3:
            continue
        name, state, cpus, memory, allocated, gres, used = fields
        _, idle, _, total = (_parse_int(part) for part in cpus.split("/"))
        found[name] = Node(
            name,
            state,
            total,
            idle,
            _parse_int(memory),
            _parse_int(allocated),
            parse_gres_counts(gres),
            parse_gres_counts(used),
        )
    return found


def parse_gres_counts(text: str) -> dict[str, int]:
    """Parse ``gpu:a100:2(S:0-1),shard:8`` into {gpu:a100: 2, shard: 8}."""
    counts: dict[str, int] = {}
    for part in _split_gres(text):
        found = _GRES.match(part)
        if found is None or found["name"].strip() in ("", "null"):
            continue
        name = f"{found['name']}:{found['type']}" if found["type"] else found["name"]
        counts[name] = counts.get(name, 0) + int(found["count"]) * _UNITS[found["unit"]]
    return counts


def _split_gres(text: str) -> list[str]:
    """Split at commas outside of parentheses; drop the parentheses."""
    return [part.strip() for part in re.sub(r"\([^)]*\)", "", text).split(",")]


class UsedResources(NamedTuple):
    """The resources of running jobs together; memory in bytes."""

    cpus: int
    memory: int
    gres: Mapping[str, int]


def parse_used(output: str) -> UsedResources:
    """Parse ``squeue -t R -O USED_FORMAT``."""
    cpus = memory = 0
    gres: dict[str, int] = {}
    for line in output.splitlines():
        fields = _split_columns(line, _USED)
        if fields is None:
            continue
        cpus += _parse_int(fields[0])
        for entry in fields[1].split(","):
            name, _, amount = entry.partition("=")
            if name == "mem":
                memory += parse_size(amount) or 0
            elif name.startswith("gres/"):
                gres[name[5:]] = gres.get(name[5:], 0) + _parse_int(amount)
    return UsedResources(cpus, memory, gres)


# --- amounts -------------------------------------------------------------------------------------


def parse_size(text: str, unit: str = "M") -> Optional[int]:
    """Return ``4G`` or ``500`` (in MiB by default) in bytes; None if it is neither."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMGTP]?)B?", text.strip().upper())
    return int(float(found[1]) * _UNITS[found[2] or unit]) if found else None


def parse_time_limit(text: str) -> Optional[int]:
    """Return the seconds of a time limit of sbatch; 0 for no limit, None if it is invalid."""
    if text.strip().upper() in ("UNLIMITED", "INFINITE", "-1"):
        return 0
    days, dash, rest = text.strip().rpartition("-")
    parts = rest.split(":")
    if not all(part.isdigit() for part in [*parts, *([days] if dash else [])]) or len(parts) > 3:
        return None
    numbers = [int(part) for part in parts]
    if dash:  # days-hours[:minutes[:seconds]]
        hours, minutes, rest_s = [*numbers, 0, 0][:3]
        return int(days) * 86400 + hours * 3600 + minutes * 60 + rest_s
    if len(numbers) == 3:
        return numbers[0] * 3600 + numbers[1] * 60 + numbers[2]
    return numbers[0] * 60 + (numbers[1] if len(numbers) == 2 else 0)


# --- Slurm's configuration -----------------------------------------------------------------------


def parse_configuration(output: str) -> dict[str, str]:
    """Parse ``scontrol show config``."""
    found = {}
    for line in output.splitlines():
        key, equals, value = line.partition("=")
        if equals:
            found[key.strip()] = value.strip()
    return found


def parse_limits(output: str) -> list[dict[str, str]]:
    """Parse the lines of ``sacctmgr -P``, whose first one is the header."""
    lines = [line.split("|") for line in output.splitlines() if line]
    return [dict(zip(lines[0], line)) for line in lines[1:]]
