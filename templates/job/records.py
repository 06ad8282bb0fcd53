"""The records of job scripts, read back: written by ``record`` in script/bash/core.sh.j2.

A record is one line; it stands in the job's own list and in a file of the spool directory. Nothing
that lies there is trusted: a torn, empty, repeated or foreign file is no record, and the order of
arrival does not matter.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Optional

from templates.common.message_fields import CutText, ExitCode

WAITING = "waiting"
RUNNING = "running"
TERMINATED = "terminated"
STATES = (WAITING, RUNNING, TERMINATED)

_FORMAT = "interlink1"
_START = b"interlink1 job="
_END = ";"
_NAME = re.compile(r"([a-z0-9-]+)\.([0-9]{1,15})\.(job|again|[cr]\.[a-z0-9-]+)\.([0-9]{1,15})")
_NUMBER = re.compile(r"-?[0-9]{1,15}")
_LONGEST_LINE = 16 * 1024  # a message of 4 KiB is 8 KiB of hexadecimal


class Record(NamedTuple):
    """One line of a job script's report."""

    job: str
    run: int  # when the script was started, in ms: a later run's records replace an earlier one's
    stream: str  # job, c.<container> or r.<container>; its writer numbers the lines
    number: int
    at_ms: int
    values: Mapping[str, str]


class End(NamedTuple):
    """The end of a container."""

    exit_code: ExitCode
    signal: int
    reason: CutText
    message: CutText
    started_ms: int
    finished_ms: int


class ContainerState(NamedTuple):
    """The state of a container, as far as its records tell."""

    name: str
    state: str = WAITING
    reason: CutText = ""  # of waiting
    message: CutText = ""  # of waiting
    started_ms: int = 0  # of running
    begun: bool = False  # running, and its startup probe (if any) has succeeded
    ready: bool = False
    restarts: int = 0
    end: Optional[End] = None  # of terminated
    last_end: Optional[End] = None  # of the instance before this one


class JobState(NamedTuple):
    """The state of a job, as far as its records tell."""

    run: int = 0
    node: str = ""
    started_ms: int = 0
    finished_ms: int = 0  # 0: not over, as far as its records tell
    exit_code: int = 0
    message: str = ""
    terminated_by_signal: bool = False  # by the batch system's TERM
    containers: Mapping[str, ContainerState] = {}


def parse_name(name: str) -> Optional[tuple[str, int, str, int]]:
    """Parse job, run, stream and number of a spool file's name; None if it is foreign."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    return found[1], int(found[2]), found[3], int(found[4])


def parse(line: bytes) -> Optional[Record]:
    """Parse the record in a line; None if there is none, or not all of it."""
    if len(line) > _LONGEST_LINE:
        return None
    # A torn line of a writer that died may stand in front of this one.
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
    """Parse all records of a file, whatever stands between them."""
    return [record for record in map(parse, io.BytesIO(content)) if record is not None]


def fold(records: Iterable[Record]) -> JobState:
    """Compute the state of one job from its records, in any order and with repetitions."""
    latest = [record for record in records if record.stream != "again"]
    run = max((record.run for record in latest), default=0)
    ordered = sorted(
        {(r.stream, r.number): r for r in latest if r.run == run}.values(), key=_sort_key
    )
    state = JobState(run=run)
    containers: dict[str, ContainerState] = {}
    for record in ordered:
        kind, _, name = record.stream.partition(".")
        if kind == "job":
            state = _apply_job(state, record)
        elif kind == "c":
            containers[name] = _apply_change(containers.get(name) or ContainerState(name), record)
        elif name in containers:
            containers[name] = _apply_readiness(containers[name], record)
    return state._replace(containers=containers)


def _sort_key(record: Record) -> tuple[bool, str, int]:
    """Sort readiness after the changes of state that it belongs to."""
    return record.stream.startswith("r."), record.stream, record.number


def _apply_job(state: JobState, record: Record) -> JobState:
    if record.values.get("state") == "started":
        return state._replace(node=record.values.get("node", ""), started_ms=record.at_ms)
    if record.values.get("state") == "finished":
        return state._replace(
            finished_ms=record.at_ms,
            exit_code=_read_number(record, "exit"),
            message=_read_text(record, "message"),
            terminated_by_signal=record.values.get("told") == "1",
        )
    return state


def _apply_change(state: ContainerState, record: Record) -> ContainerState:
    values = record.values
    before = state.end or state.last_end
    fresh = ContainerState(state.name, restarts=_read_number(record, "restarts"), last_end=before)
    kind = values.get("state")
    if kind == WAITING:
        return fresh._replace(
            reason=values.get("reason", ""), message=_read_text(record, "message")
        )
    if kind == RUNNING:
        return fresh._replace(
            state=RUNNING,
            started_ms=_read_number(record, "started"),
            begun=values.get("begun") == "1",
            ready=values.get("ready") == "1",
        )
    if kind == TERMINATED:
        code = _read_number(record, "exit")
        end = End(
            exit_code=code,
            signal=code - 128 if 128 < code < 193 else 0,  # as a shell tells it
            reason=values.get("reason", ""),
            message=_read_text(record, "message"),
            started_ms=_read_number(record, "started"),
            finished_ms=_read_number(record, "finished"),
        )
        return fresh._replace(state=TERMINATED, end=end)
    return state


def _apply_readiness(state: ContainerState, record: Record) -> ContainerState:
    """Apply readiness, which belongs to one start of the container while it runs."""
    if state.state != RUNNING or _read_number(record, "restarts") != state.restarts:
        return state
    values = record.values
    return state._replace(begun=values.get("begun") == "1", ready=values.get("ready") == "1")


def _read_number(record: Record, key: str) -> int:
    text = record.values.get(key, "")
    return int(text) if _NUMBER.fullmatch(text) else 0


def _read_text(record: Record, key: str) -> str:
    try:
        return bytes.fromhex(record.values.get(key, "")).decode(errors="replace")
    except ValueError:
        return ""
