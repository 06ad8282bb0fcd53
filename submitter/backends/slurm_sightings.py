"""What a line of squeue's or sacct's means for a job."""

from __future__ import annotations

from typing import Optional

from submitter.backends.base import Sighting
from submitter.backends.slurm_parsing import Row, exit_code_of
from submitter.backends.slurm_states import OOM_CODE, State, first_word, state_of, waiting_words
from templates.states import ENDED, QUEUED, STARTED

# Of FAILED jobs: what Slurm's own exit codes (EXIT:SIGNAL) mean.
_CODES = {
    "0:53": "its node could not open the job's directory or output file",
    "0:9": "it was killed, as Slurm does with a job that uses more memory than it has",
}
_PUT_BACK = ("REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT")


def sighting_of(row: Row) -> Optional[Sighting]:
    """None for a state that nobody knows here."""
    state = state_of(row.state)
    if state is None:
        return None
    if state.phase == STARTED:
        return Sighting(STARTED)
    if state.phase == QUEUED:
        return _waiting(row, state)
    return _ended(row, state)


def _waiting(row: Row, state: State) -> Sighting:
    reason, words = waiting_words(row.reason)
    if state.reason:
        reason = state.reason
        words = words or f"Slurm: {first_word(row.state)}: {state.words}"
    if row.restarts:
        times = "once" if row.restarts == 1 else f"{row.restarts} times"
        words = f"{words or 'Slurm'} (put back into the queue {times})"
    again = row.restarts > 0 or first_word(row.state) in _PUT_BACK
    return Sighting(QUEUED, reason, words, requeued=again)


def _ended(row: Row, state: State) -> Sighting:
    code = exit_code_of(row.exit_code)
    words = _CODES.get(row.exit_code, state.words) if row.state == "FAILED" else state.words
    told = f" (exit code {row.exit_code})" if code else ""
    if state.exit_code == OOM_CODE:
        code = OOM_CODE
    return Sighting(
        ENDED,
        state.reason,
        f"Slurm: {row.state}{told}: {words}",
        exit_code=code or state.exit_code,
        at_ms=row.end_s * 1000,
        lost=state.lost,
    )
