"""Hysteresis for capacity: a rise counts after it has held, a fall (nearly) at once."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

MAX_SAMPLES = 64  # remembered of one resource; older ones are forgotten first


class Sample(NamedTuple):
    """Amount that was published from a moment on."""

    at: float
    amount: Fraction


History = tuple[Sample, ...]  # in the order of time; the last one is what is published now


def append_sample(history: History, at: float, amount: Fraction, keep_s: float) -> History:
    """Return the history with a new sample, without those that can no longer matter."""
    if not history or history[-1].amount != amount:
        history = (*history, Sample(at, amount))
    begin = 0
    while begin + 1 < len(history) and history[begin + 1].at <= at - keep_s:
        begin += 1
    return history[begin:][-MAX_SAMPLES:]


def effective_amount(
    history: History, now: float, rise_after_s: float, fall_after_s: float
) -> Fraction:
    """Return the amount that counts now.

    A fall counts once nothing higher was published for ``fall_after_s``; a rise once nothing lower
    counted for ``rise_after_s``. What was published first counts at once.
    """
    begin = max(now - rise_after_s, history[0].at)
    moments = {begin, now}
    for step in history:
        moments.update(at for at in (step.at, step.at + fall_after_s) if begin <= at <= now)
    return min(_highest(history, at - fall_after_s, at) for at in moments)


def _highest(history: Sequence[Sample], begin: float, end: float) -> Fraction:
    """Return the highest amount that was in force at any moment from one to another."""
    until = [step.at for step in history[1:]]
    amounts = [
        step.amount
        for step, over in zip(history, [*until, float("inf")])
        if step.at <= end and over > begin
    ]
    return max(amounts, default=history[0].amount)
