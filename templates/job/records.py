"""Reading back what job scripts report: the other end of ``record`` in jobs/core.sh.j2.

A record is one line; it stands in the job's own list and in a file of the spool directory. Nothing
that lies there is trusted: a torn, empty, repeated or foreign file is no record, and the order of
arrival does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Optional

WAITING = "waiting"
RUNNING = "running"
TERMINATED = "terminated"

_FORMAT = "interlink1"
_START = b"interlink1 job="
_END = ";"
_NAME = re.compile(r"([a-z0-9-]+)\.([0-9]{1,15})\.(job|again|[cr]\.[a-z0-9-]+)\.([0-9]{1,15})")
_NUMBER = re.compile(r"-?[0-9]{1,15}")
_LONGEST_LINE = 16 * 1024  # a message of 4 KiB is 8 KiB of hexadecimal


class Record(NamedTuple):
    """One line of a job script's."""

    job: str
    run: int  # when the script was started, in ms: a later run's records replace an earlier one's
    stream: str  # job, c.<container> or r.<container>; its writer numbers the lines
    number: int
    at_ms: int
    values: Mapping[str, str]


class End(NamedTuple):
    """How a container ended."""

    exit_code: int
    signal: int
    reason: str
    message: str
    started_ms: int
    finished_ms: int


class ContainerState(NamedTuple):
    """What is known of a container."""

    name: str
    state: str = WAITING
    reason: str = ""  # of waiting
    message: str = ""  # of waiting
    started_ms: int = 0  # of running
    begun: bool = False  # running, and its startup probe (if any) has succeeded
    ready: bool = False
    restarts: int = 0
    end: Optional[End] = None  # of terminated
    last_end: Optional[End] = None  # of the instance before this one


class JobState(NamedTuple):
    """What is known of a job from its records."""

    run: int = 0
    node: str = ""
    started_ms: int = 0
    finished_ms: int = 0  # 0: not over, as far as the script has said
    exit_code: int = 0
    message: str = ""
    told: bool = False  # it ended because the batch system had told it to
    containers: Mapping[str, ContainerState] = {}


def parse_name(name: str) -> Optional[tuple[str, int, str, int]]:
    """Job, run, stream and number from the name of a spool file; None for a foreign one."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    return found[1], int(found[2]), found[3], int(found[4])


def parse(line: bytes) -> Optional[Record]:
    """The record in a line; None when there is none, or not all of it."""
    if len(line) > _LONGEST_LINE:
        return None
    # What a writer that died left of its line may stand in front of this one.
    try:
        parts = line[max(line.rfind(_START), 0) :].decode("ascii").split()
    except UnicodeDecodeError:
        return None
    if len(parts) < 3 or parts[0] != _FORMAT or parts[-1] != _END:
        return None
    values = dict(part.partition("=")[::2] for part in parts[1:-1])
    if not all(_NUMBER.fullmatch(values.get(key, "")) for key in ("run", "n", "at")):
        return None
    job, stream = values.get("job", ""), values.get("stream", "")
    name = parse_name(f"{job}.{values['run']}.{stream}.{values['n']}")
    if name is None:
        return None
    return Record(job, name[1], stream, name[3], int(values["at"]), values)


def parse_lines(content: bytes) -> list[Record]:
    """All the records of a file, whatever stands between them."""
    return [record for record in map(parse, content.splitlines()) if record is not None]


def fold(records: Iterable[Record]) -> JobState:
    """The state of one job from all of its records, in any order and any number of times."""
    latest = [record for record in records if record.stream != "again"]
    run = max((record.run for record in latest), default=0)
    ordered = sorted({(r.stream, r.number): r for r in latest if r.run == run}.values(), key=_place)
    state = JobState(run=run)
    containers: dict[str, ContainerState] = {}
    for record in ordered:
        kind, _, name = record.stream.partition(".")
        if kind == "job":
            state = _with_job(state, record)
        elif kind == "c":
            containers[name] = _with_change(containers.get(name) or ContainerState(name), record)
        elif name in containers:
            containers[name] = _with_readiness(containers[name], record)
    return state._replace(containers=containers)


def _place(record: Record) -> tuple[bool, str, int]:
    """Readiness after the changes of state that it belongs to."""
    return record.stream.startswith("r."), record.stream, record.number


def _with_job(state: JobState, record: Record) -> JobState:
    if record.values.get("state") == "started":
        return state._replace(node=record.values.get("node", ""), started_ms=record.at_ms)
    if record.values.get("state") == "finished":
        return state._replace(
            finished_ms=record.at_ms,
            exit_code=_number(record, "exit"),
            message=_text(record, "message"),
            told=record.values.get("told") == "1",
        )
    return state


def _with_change(state: ContainerState, record: Record) -> ContainerState:
    values = record.values
    before = state.end or state.last_end
    fresh = ContainerState(state.name, restarts=_number(record, "restarts"), last_end=before)
    kind = values.get("state")
    if kind == WAITING:
        return fresh._replace(reason=values.get("reason", ""), message=_text(record, "message"))
    if kind == RUNNING:
        return fresh._replace(
            state=RUNNING,
            started_ms=_number(record, "started"),
            begun=values.get("begun") == "1",
            ready=values.get("ready") == "1",
        )
    if kind == TERMINATED:
        code = _number(record, "exit")
        end = End(
            exit_code=code,
            signal=code - 128 if 128 < code < 193 else 0,  # as a shell tells it
            reason=values.get("reason", ""),
            message=_text(record, "message"),
            started_ms=_number(record, "started"),
            finished_ms=_number(record, "finished"),
        )
        return fresh._replace(state=TERMINATED, end=end)
    return state


def _with_readiness(state: ContainerState, record: Record) -> ContainerState:
    """Readiness belongs to one start of the container, and only while it runs."""
    if state.state != RUNNING or _number(record, "restarts") != state.restarts:
        return state
    values = record.values
    return state._replace(begun=values.get("begun") == "1", ready=values.get("ready") == "1")


def _number(record: Record, key: str) -> int:
    text = record.values.get(key, "")
    return int(text) if _NUMBER.fullmatch(text) else 0


def _text(record: Record, key: str) -> str:
    try:
        return bytes.fromhex(record.values.get(key, "")).decode(errors="replace")
    except ValueError:
        return ""
