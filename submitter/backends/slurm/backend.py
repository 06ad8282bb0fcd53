"""The Slurm backend: sbatch, squeue, scancel, and sacct where there is accounting.

One squeue shows all jobs. Those that have left the queue and whose script left no final record are
looked up by one sacct; without accounting, or while it does not respond, the next squeue shows the
jobs that have ended as well, for as long as Slurm remembers them (its MinJobAge).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Optional

from submitter.backends.base import JobRef, Observation
from submitter.backends.command_backend import HISTORY_S, CommandBackend
from submitter.backends.commands import CommandRunner, chunks
from submitter.backends.slurm import parsing
from submitter.backends.slurm.capacity import read_capacity
from submitter.backends.slurm.commands import SlurmCommands
from submitter.backends.slurm.errors import (
    classify_submit_failure,
    is_controller_error,
    is_unnamed_limit,
)
from submitter.backends.slurm.observations import observe
from submitter.backends.slurm.options import load
from submitter.backends.slurm.parsing import Row
from submitter.backends.slurm.request import build_request, build_script
from submitter.backends.slurm.states import find_state
from submitter.common.errors import (
    BackendUnavailable,
    CommandFailed,
    Forbidden,
    NoRoom,
    SubmitRefused,
    SubmitUnclear,
)
from submitter.common.nats_request import AskNats, not_connected
from submitter.config.settings import Pool
from templates.job.model import Job
from templates.job.status import ENDED, QUEUED

COMPLETING_S = 10.0  # a job that takes longer to end is looked up
STUCK_S = 120.0  # and one that takes so long counts as ended: its node is away
_NOT_CANCELLED = "Kill job error on job id"  # it has ended, or has not begun


class SlurmBackend(CommandBackend):
    """One Slurm cluster, as the user that the submitter runs as."""

    title = "Slurm"

    def __init__(self, pool: Pool, ask: AskNats = not_connected) -> None:
        super().__init__(pool, ask)
        self._options = load(pool.options, pool.name)
        self._commands = SlurmCommands(self._options)
        self._completing: dict[str, float] = {}  # since when
        self._includes_ended = False  # whether the next squeue shows jobs that have ended, too

    @property
    def _runner(self) -> CommandRunner:
        return self._commands

    def check(self, job: Job) -> None:
        build_request(job, self.pool, self._options)

    # --- submitting ---------------------------------------------------------------------------

    def submit(self, job: Job, directory: str) -> str:
        try:
            text = build_script(job, directory, self.pool, self._options)
            output = self._commands.run("sbatch", ["--parsable"], text)
        except Forbidden as error:
            raise SubmitRefused(str(error)) from None
        except CommandFailed as error:
            number = parsing.parse_job_number(error.output)
            if number is not None:  # it reports an error, and has accepted the job all the same
                return number
            failure = classify_submit_failure(error)
            if isinstance(failure, NoRoom) and is_unnamed_limit(str(failure)) and not self._queue():
                raise SubmitRefused(str(failure)) from None  # no job of ours uses up the limit
            raise failure from None
        number = parsing.parse_job_number(output)
        if number is None:
            raise SubmitUnclear(f"sbatch names no job: {output[:200].strip() or 'it says nothing'}")
        return number

    def _find_submitted(self, names: Sequence[str]) -> dict[str, str]:
        found: dict[str, Row] = {}
        # Of several jobs of one name the first of that order counts.
        for row in sorted(self._query_named(names), key=_sort_key, reverse=True):
            found[row.name] = row
        return {name: found[name].number for name in names if name in found}

    def _is_native(self, text: str) -> bool:
        return text.isascii() and text.isdigit()

    def _query_named(self, names: Sequence[str]) -> list[Row]:
        wanted = f"--name={','.join(names)}"
        user = self._commands.user
        output = self._commands.query(
            *("squeue", "-h", "-a", "-u", user, "-t", "all", wanted),
            *("-O", parsing.PAST_FORMAT),
        )
        rows = list(parsing.parse_past(output))
        if len({row.name for row in rows}) < len(names) and self._commands.has_accounting():
            since = time.localtime(time.time() - HISTORY_S)
            output = self._commands.query(
                *("sacct", "-nPX", "-u", user, wanted),
                *("-S", time.strftime("%Y-%m-%dT%H:%M:%S", since)),
                *("-o", parsing.ACCOUNTING_FORMAT),
            )
            rows += parsing.parse_accounting(output)
        return rows

    # --- polling ------------------------------------------------------------------------------

    def poll(self, refs: Sequence[JobRef]) -> Mapping[str, Observation]:
        rows = self._queue(self._includes_ended)
        observations: dict[str, Observation] = {}
        missing: list[JobRef] = []
        for ref in refs:
            row = rows.get(ref.native)
            if row is None or row.name != ref.name:  # Slurm may reuse a number
                missing.append(ref)
                continue
            observations[ref.name] = observation = self._observe(row, ref)
            if self._ends_slowly(row) and observation.phase != ENDED:
                missing.append(ref)
        if missing:
            self._look_up(missing, observations)
        names = {ref.name for ref in refs}
        self._last_observations = {n: seen for n, seen in observations.items() if n in names}
        self._completing = {n: since for n, since in self._completing.items() if n in names}
        return observations

    def _queue(self, includes_ended: bool = False) -> dict[str, Row]:
        """Query all jobs of the user that wait or run; also those that ended lately, if wanted."""
        arguments = ["-h", "-a", "-r", "-u", self._commands.user]
        if includes_ended:
            arguments += ["-t", "all", "-O", parsing.PAST_FORMAT]
            output = self._commands.query("squeue", *arguments)
            return {row.number: row for row in parsing.parse_past(output)}
        output = self._commands.query("squeue", *arguments, "-O", parsing.QUEUE_FORMAT)
        return {row.number: row for row in parsing.parse_queue(output)}

    def _observe(self, row: Row, ref: JobRef) -> Observation:
        found = observe(row, ref.directory, self._options.warning_s)
        if found is None:  # an unknown state: nothing changes
            return self._last_observation(row.name)
        return found

    def _ends_slowly(self, row: Row) -> bool:
        if row.state != "COMPLETING":
            self._completing.pop(row.name, None)
            return False
        since = self._completing.setdefault(row.name, time.monotonic())
        return time.monotonic() - since > COMPLETING_S

    def _look_up(self, missing: Sequence[JobRef], observations: dict[str, Observation]) -> None:
        """Observe jobs that are not in the queue, or stay in it while they end."""
        rows: Optional[dict[str, Row]] = {}
        if self._commands.has_accounting():
            rows = self._query_accounting(missing)
        unknown = False
        for ref in missing:
            row = rows.get(ref.native) if rows is not None else None
            if row is not None and row.name != ref.name:
                row = None
            observation = None
            if row is not None:
                warning_s = self._options.warning_s
                observation = observe(row, ref.directory, warning_s)
            if observation is not None and observation.phase == ENDED:
                # Slurm names the user who cancelled a job; none if its controller has lost it.
                forgotten = row is not None and row.state.strip() == "CANCELLED"
                lost = observation.lost or forgotten
                observations[ref.name] = observation._replace(lost=lost)
            elif ref.name in observations:
                self._give_up_waiting(ref.name, observations)
            else:
                unknown = True
                if rows is None:  # no accounting: its state does not change
                    observations[ref.name] = self._last_observation(ref.name)
        self._includes_ended = unknown

    def _give_up_waiting(self, name: str, observations: dict[str, Observation]) -> None:
        """End a job that stays COMPLETING: its node is away, and may never come back."""
        if time.monotonic() - self._completing.get(name, time.monotonic()) > STUCK_S:
            message = "Slurm: COMPLETING: its node does not answer"
            observations[name] = Observation(ENDED, "NodeFail", message, exit_code=1)

    def _query_accounting(self, refs: Sequence[JobRef]) -> Optional[dict[str, Row]]:
        """Return sacct's rows of jobs, by number; None if it does not respond."""
        numbers = [ref.native for ref in refs if ref.native.isdigit()]
        if not numbers:
            return {}
        try:
            output = self._commands.query(
                *("sacct", "-nPX", "-j", ",".join(numbers[:5000])),
                *("-o", parsing.ACCOUNTING_FORMAT),
            )
        except BackendUnavailable:
            return None
        return {row.number: row for row in parsing.parse_accounting(output)}

    # --- ending -------------------------------------------------------------------------------

    def cancel(self, refs: Sequence[JobRef], kill: bool) -> None:
        rows = self._queue()
        own = [ref for ref in refs if _is_in(rows, ref)]
        waiting = [ref.native for ref in own if _is_queued(rows[ref.native])]
        for numbers in chunks(ref.native for ref in own):
            if kill:
                self._cancel(numbers)
                continue
            idle = [number for number in numbers if number in waiting]
            if idle:  # unless it has started meanwhile: then it gets its TERM, too
                self._cancel(["--state=PENDING", *idle])
            self._cancel(["--batch", "--signal=TERM", *numbers])

    def _cancel(self, arguments: Sequence[str]) -> None:
        try:
            self._commands.run("scancel", arguments)
        except CommandFailed as error:
            if _NOT_CANCELLED not in str(error) or is_controller_error(str(error)):
                raise BackendUnavailable(str(error)) from None

    def clean(self, refs: Sequence[JobRef]) -> set[str]:
        """Take ended jobs that Slurm would start again out of the queue."""
        requeued = [ref.native for ref in refs if self._last_observation(ref.name).requeued]
        for numbers in chunks(requeued):
            self._cancel(["--state=PENDING", *numbers])
        for ref in refs:
            self._last_observations.pop(ref.name, None)
        return {ref.name for ref in refs}

    # --- capacity -----------------------------------------------------------------------------

    def _measure_capacity(self) -> dict[str, str]:
        return read_capacity(self._commands, self._options)


def _is_in(rows: Mapping[str, Row], ref: JobRef) -> bool:
    return ref.native in rows and rows[ref.native].name == ref.name


def _is_queued(row: Row) -> bool:
    state = find_state(row.state)
    return state is not None and state.phase == QUEUED


def _sort_key(row: Row) -> tuple[bool, int]:
    """Sort jobs that have not ended before those that have, and older ones before newer ones."""
    state = find_state(row.state)
    return state is not None and state.phase == ENDED, int(row.number)
