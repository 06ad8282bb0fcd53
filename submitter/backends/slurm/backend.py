"""Runs jobs under Slurm: sbatch, squeue, scancel, and sacct where there is accounting.

One squeue answers for all jobs. Those that have left the queue without a last word of their own
are looked up by one sacct; without accounting, or while it does not answer, the next squeue shows
the jobs that have ended as well, for as long as Slurm remembers them (its MinJobAge).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Optional

from submitter.backends.base import JobRef, Observation
from submitter.backends.command_backend import REMEMBERED_S, CommandBackend
from submitter.backends.commands import CommandRunner, chunks
from submitter.backends.slurm import parsing
from submitter.backends.slurm.capacity import capacity
from submitter.backends.slurm.commands import SlurmCommands
from submitter.backends.slurm.errors import is_policy, is_trouble, submit_error
from submitter.backends.slurm.observations import observe
from submitter.backends.slurm.options import load
from submitter.backends.slurm.parsing import Row
from submitter.backends.slurm.request import request, script
from submitter.backends.slurm.states import state_of
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

COMPLETING_S = 10.0  # an end that takes longer is asked about
STUCK_S = 120.0  # and one that takes so long is taken for one: its node is away
_OF_ONE_JOB = "Kill job error on job id"  # it has ended, or has not begun


class SlurmBackend(CommandBackend):
    """One Slurm cluster, as the user that the submitter runs as."""

    title = "Slurm"

    def __init__(self, pool: Pool, ask: AskNats = not_connected) -> None:
        super().__init__(pool, ask)
        self._options = load(pool.options, pool.name)
        self._commands = SlurmCommands(self._options)
        self._completing: dict[str, float] = {}  # since when
        self._looks_back = False  # whether the next squeue shows jobs that have ended, too

    @property
    def _programs(self) -> CommandRunner:
        return self._commands

    def check(self, job: Job) -> None:
        request(job, self.pool, self._options)

    # --- submitting ---------------------------------------------------------------------------

    def submit(self, job: Job, directory: str) -> str:
        try:
            text = script(job, directory, self.pool, self._options)
            output = self._commands.run("sbatch", ["--parsable"], text)
        except Forbidden as error:
            raise SubmitRefused(str(error)) from None
        except CommandFailed as error:
            number = parsing.job_number(error.output)
            if number is not None:  # it complains, and has taken the job all the same
                return number
            failure = submit_error(error)
            if isinstance(failure, NoRoom) and is_policy(str(failure)) and not self._queue():
                raise SubmitRefused(str(failure)) from None  # no job of ours takes its room
            raise failure from None
        number = parsing.job_number(output)
        if number is None:
            raise SubmitUnclear(f"sbatch names no job: {output[:200].strip() or 'it says nothing'}")
        return number

    def _find_submitted(self, names: Sequence[str]) -> dict[str, str]:
        found: dict[str, Row] = {}
        for row in sorted(self._named(names), key=_age, reverse=True):  # of several, the first
            found[row.name] = row
        return {name: found[name].number for name in names if name in found}

    def _is_native(self, text: str) -> bool:
        return text.isascii() and text.isdigit()

    def _named(self, names: Sequence[str]) -> list[Row]:
        wanted = f"--name={','.join(names)}"
        user = self._commands.user
        answer = self._commands.ask(
            *("squeue", "-h", "-a", "-u", user, "-t", "all", wanted),
            *("-O", parsing.PAST_FORMAT),
        )
        rows = list(parsing.past_rows(answer))
        if len({row.name for row in rows}) < len(names) and self._commands.has_accounting():
            since = time.localtime(time.time() - REMEMBERED_S)
            answer = self._commands.ask(
                *("sacct", "-nPX", "-u", user, wanted),
                *("-S", time.strftime("%Y-%m-%dT%H:%M:%S", since)),
                *("-o", parsing.ACCOUNTING_FORMAT),
            )
            rows += parsing.accounting_rows(answer)
        return rows

    # --- looking ------------------------------------------------------------------------------

    def poll(self, refs: Sequence[JobRef]) -> Mapping[str, Observation]:
        rows = self._queue(self._looks_back)
        observations: dict[str, Observation] = {}
        left: list[JobRef] = []
        for ref in refs:
            row = rows.get(ref.native)
            if row is None or row.name != ref.name:  # numbers may be given out again
                left.append(ref)
                continue
            observations[ref.name] = observation = self._sight(row, ref)
            if self._ends_slowly(row) and observation.phase != ENDED:
                left.append(ref)
        if left:
            self._look_up(left, observations)
        known = {ref.name for ref in refs}
        self._last = {name: seen for name, seen in observations.items() if name in known}
        self._completing = {n: since for n, since in self._completing.items() if n in known}
        return observations

    def _queue(self, looks_back: bool = False) -> dict[str, Row]:
        """All jobs of the user that wait or run; with those that ended lately, if asked for."""
        asked = ["-h", "-a", "-r", "-u", self._commands.user]
        if looks_back:
            answer = self._commands.ask("squeue", *asked, "-t", "all", "-O", parsing.PAST_FORMAT)
            return {row.number: row for row in parsing.past_rows(answer)}
        answer = self._commands.ask("squeue", *asked, "-O", parsing.QUEUE_FORMAT)
        return {row.number: row for row in parsing.queue_rows(answer)}

    def _sight(self, row: Row, ref: JobRef) -> Observation:
        found = observe(row, ref.directory, self._options.warning_s)
        if found is None:  # a state that is new: nothing changes
            return self._last_observation(row.name)
        return found

    def _ends_slowly(self, row: Row) -> bool:
        if row.state != "COMPLETING":
            self._completing.pop(row.name, None)
            return False
        since = self._completing.setdefault(row.name, time.monotonic())
        return time.monotonic() - since > COMPLETING_S

    def _look_up(self, left: Sequence[JobRef], observations: dict[str, Observation]) -> None:
        """Jobs that are not in the queue, or do not get out of it."""
        rows: Optional[dict[str, Row]] = {}
        if self._commands.has_accounting():
            rows = self._accounted(left)
        unknown = False
        for ref in left:
            row = rows.get(ref.native) if rows is not None else None
            if row is not None and row.name != ref.name:
                row = None
            observation = None
            if row is not None:
                warning_s = self._options.warning_s
                observation = observe(row, ref.directory, warning_s)
            if observation is not None and observation.phase == ENDED:
                # Who cancels a job is named, unless it is a controller that has lost it.
                forgotten = row is not None and row.state.strip() == "CANCELLED"
                lost = observation.lost or forgotten
                observations[ref.name] = observation._replace(lost=lost)
            elif ref.name in observations:
                self._give_up_waiting(ref.name, observations)
            else:
                unknown = True
                if rows is None:  # nobody could be asked: it stays what it was
                    observations[ref.name] = self._last_observation(ref.name)
        self._looks_back = unknown

    def _give_up_waiting(self, name: str, observations: dict[str, Observation]) -> None:
        """A job that neither ends nor goes on: its node is away, and may never come back."""
        if time.monotonic() - self._completing.get(name, time.monotonic()) > STUCK_S:
            words = "Slurm: COMPLETING: its node does not answer"
            observations[name] = Observation(ENDED, "NodeFail", words, exit_code=1)

    def _accounted(self, refs: Sequence[JobRef]) -> Optional[dict[str, Row]]:
        """What sacct says of jobs, by number; None when it cannot be asked."""
        numbers = [ref.native for ref in refs if ref.native.isdigit()]
        if not numbers:
            return {}
        try:
            answer = self._commands.ask(
                *("sacct", "-nPX", "-j", ",".join(numbers[:5000])),
                *("-o", parsing.ACCOUNTING_FORMAT),
            )
        except BackendUnavailable:
            return None
        return {row.number: row for row in parsing.accounting_rows(answer)}

    # --- ending -------------------------------------------------------------------------------

    def cancel(self, refs: Sequence[JobRef], kill: bool) -> None:
        rows = self._queue()
        own = [t for t in refs if t.native in rows and rows[t.native].name == t.name]
        waiting = [ref.native for ref in own if _waits(rows[ref.native])]
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
            if _OF_ONE_JOB not in str(error) or is_trouble(str(error)):
                raise BackendUnavailable(str(error)) from None

    def clean(self, refs: Sequence[JobRef]) -> set[str]:
        """A job that is over, and that Slurm would start again, has to leave the queue."""
        again = [t.native for t in refs if self._last_observation(t.name).requeued]
        for numbers in chunks(again):
            self._cancel(["--state=PENDING", *numbers])
        for ref in refs:
            self._last.pop(ref.name, None)
        return {ref.name for ref in refs}

    # --- room ---------------------------------------------------------------------------------

    def _measure_capacity(self) -> dict[str, str]:
        return capacity(self._commands, self._options)


def _waits(row: Row) -> bool:
    state = state_of(row.state)
    return state is not None and state.phase == QUEUED


def _age(row: Row) -> tuple[bool, int]:
    """The first of several jobs of one name, those before all that have not ended."""
    state = state_of(row.state)
    return state is not None and state.phase == ENDED, int(row.number)
