"""What a line of squeue's or sacct's means for a job."""

from __future__ import annotations

import os
import re
from typing import Optional

from submitter.backends.base import Observation
from submitter.backends.slurm.parsing import Row, exit_code_of
from submitter.backends.slurm.states import (
    OOM_CODE,
    STATES,
    SlurmState,
    first_word,
    state_of,
    waiting_words,
)
from templates.job.status import ENDED, QUEUED, STARTED

# Of FAILED jobs: what Slurm's own exit codes (EXIT:SIGNAL) mean.
_KILLED = "0:9"
_NO_FILES = "0:53"
_CODES = {
    _NO_FILES: "its node could not open the job's directory or output file",
    _KILLED: "it was killed, as Slurm does with a job that uses more memory than it has",
}
# Where no control group limits memory, a job that is killed for it is FAILED, as if anybody had
# killed it: only the node says why, in the job's output.
_OVER_MEMORY = re.compile(rb"exceeded (?:job )?memory limit", re.IGNORECASE)
_TAIL = 64 * 1024  # bytes at the end of the output
EARLY_S = 60  # a warning may come so much earlier than asked for (sbatch(1), --signal)
_PUT_BACK = ("REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT")


def observe(row: Row, directory: str = "", warning_s: int = 0) -> Optional[Observation]:
    """None for a state that nobody knows here.

    ``directory`` is the job's; ``warning_s``, how long before its time limit it is told to end.
    """
    state = state_of(row.state)
    if state is None:
        return None
    if row.state == "FAILED" and row.exit_code == _KILLED and _over_memory(f"{directory}/output"):
        state = STATES["OUT_OF_MEMORY"]
    if state.phase == STARTED:
        return Observation(STARTED)
    if state.phase == QUEUED:
        return _waiting(row, state)
    return _ended(row, state)._replace(if_terminated=_warned(row, warning_s))


def _waiting(row: Row, state: SlurmState) -> Observation:
    reason, words = waiting_words(row.reason)
    if state.reason:
        reason = state.reason
        words = words or f"Slurm: {first_word(row.state)}: {state.words}"
    if row.restarts:
        times = "once" if row.restarts == 1 else f"{row.restarts} times"
        words = f"{words or 'Slurm'} (put back into the queue {times})"
    again = row.restarts > 0 or first_word(row.state) in _PUT_BACK
    return Observation(QUEUED, reason, words, requeued=again)


def _ended(row: Row, state: SlurmState) -> Observation:
    code = exit_code_of(row.exit_code)
    words = state.words
    if state is STATES["FAILED"]:
        words = _CODES.get(row.exit_code, words)
    told = f" (exit code {row.exit_code})" if code else ""
    if state.exit_code == OOM_CODE:
        code = OOM_CODE
    return Observation(
        ENDED,
        state.reason,
        f"Slurm: {row.state}{told}: {words}",
        exit_code=code or state.exit_code,
        at_ms=row.end_s * 1000,
        lost=state.lost or (row.state, row.exit_code) == ("FAILED", _NO_FILES),
    )


def _warned(row: Row, warning_s: int) -> str:
    """What ended it, if it was told to end: so near to its limit, that was because of the limit.

    It obeyed, and Slurm takes its end for its own.
    """
    ran_s = row.end_s - row.start_s
    near = bool(row.end_s and row.limit_s) and ran_s >= row.limit_s - warning_s - EARLY_S
    return STATES["TIMEOUT"].reason if near and warning_s and row.state == "FAILED" else ""


def _over_memory(output: str) -> bool:
    """Whether the end of a job's output says so."""
    try:
        with open(output, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            return _OVER_MEMORY.search(file.read(_TAIL)) is not None
    except OSError:
        return False
