"""Observations of jobs from lines of squeue and sacct."""

from __future__ import annotations

import re
from typing import Optional

from submitter.backends.base import Observation
from submitter.backends.slurm.parsing import Row, parse_exit_code
from submitter.backends.slurm.states import (
    OOM_CODE,
    STATES,
    SlurmState,
    describe_waiting,
    find_state,
    first_word,
)
from submitter.common.guarded_files import read_end
from templates.job.status import ENDED, QUEUED, STARTED

# The meaning of Slurm's own exit codes (EXIT:SIGNAL) of FAILED jobs.
_KILLED = "0:9"
_NO_FILES = "0:53"
_CODES = {
    _NO_FILES: "its node could not open the job's directory or output file",
    _KILLED: "it was killed, as Slurm does with a job that uses more memory than it has",
}
# Where no control group limits memory, a job that is killed for it is FAILED, as after any kill:
# only the node writes the reason, into the job's output.
_OVER_MEMORY = re.compile(rb"exceeded (?:job )?memory limit", re.IGNORECASE)
_TAIL = 64 * 1024  # bytes at the end of the output
EARLY_S = 60  # a warning may come so much earlier than asked for (sbatch(1), --signal)
_PUT_BACK = ("REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT")


def observe(row: Row, directory: str = "", warning_s: int = 0) -> Optional[Observation]:
    """Return the observation of a job; None if its state is unknown.

    ``directory`` is the job's; ``warning_s``, how long before its time limit it gets a TERM.
    """
    state = find_state(row.state)
    if state is None:
        return None
    is_killed = (row.state, row.exit_code) == ("FAILED", _KILLED)
    if is_killed and _reports_memory_limit(f"{directory}/output"):
        state = STATES["OUT_OF_MEMORY"]
    if state.phase == STARTED:
        return Observation(STARTED)
    if state.phase == QUEUED:
        return _observe_waiting(row, state)
    return _observe_ended(row, state)._replace(if_terminated=_reason_if_terminated(row, warning_s))


def _observe_waiting(row: Row, state: SlurmState) -> Observation:
    reason, message = describe_waiting(row.reason)
    if state.reason:
        reason = state.reason
        message = message or f"Slurm: {first_word(row.state)}: {state.meaning}"
    if row.restarts:
        times = "once" if row.restarts == 1 else f"{row.restarts} times"
        message = f"{message or 'Slurm'} (put back into the queue {times})"
    requeued = row.restarts > 0 or first_word(row.state) in _PUT_BACK
    return Observation(QUEUED, reason, message, requeued=requeued)


def _observe_ended(row: Row, state: SlurmState) -> Observation:
    code = parse_exit_code(row.exit_code)
    meaning = state.meaning
    if state is STATES["FAILED"]:
        meaning = _CODES.get(row.exit_code, meaning)
    shown = f" (exit code {row.exit_code})" if code else ""
    if state.exit_code == OOM_CODE:
        code = OOM_CODE
    return Observation(
        ENDED,
        state.reason,
        f"Slurm: {row.state}{shown}: {meaning}",
        exit_code=code or state.exit_code,
        at_ms=row.end_s * 1000,
        lost=state.lost or (row.state, row.exit_code) == ("FAILED", _NO_FILES),
    )


def _reason_if_terminated(row: Row, warning_s: int) -> str:
    """Return the reason of a job that ended after a TERM: near its limit, that is the limit.

    Slurm reports the end of a script that obeyed as the script's own.
    """
    ran_s = row.end_s - row.start_s
    near = bool(row.end_s and row.limit_s) and ran_s >= row.limit_s - warning_s - EARLY_S
    return STATES["TIMEOUT"].reason if near and warning_s and row.state == "FAILED" else ""


def _reports_memory_limit(output: str) -> bool:
    """Return whether the end of a job's output names a memory limit."""
    try:
        return _OVER_MEMORY.search(read_end(output, _TAIL)) is not None
    except OSError:
        return False
