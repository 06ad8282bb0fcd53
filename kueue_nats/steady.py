"""Capacity that wobbles, held steady: a rise counts after it has held, a fall (nearly) at once."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

MOST_STEPS = 64  # remembered of one resource; older ones are forgotten first


class Step(NamedTuple):
    """From a moment on, so much was published."""

    at: float
    amount: Fraction


History = tuple[Step, ...]  # in the order of time; the last one is what is published now


def added(history: History, at: float, amount: Fraction, keep_s: float) -> History:
    """The history with what was published at a moment, without what can no longer matter."""
    if not history or history[-1].amount != amount:
        history = (*history, Step(at, amount))
    begin = 0
    while begin + 1 < len(history) and history[begin + 1].at <= at - keep_s:
        begin += 1
    return history[begin:][-MOST_STEPS:]


def held(history: History, now: float, rise_after_s: float, fall_after_s: float) -> Fraction:
    """What counts now.

    A fall counts once nothing higher was published for ``fall_after_s``; a rise once nothing lower
    counted for ``rise_after_s``. What was published first counts at once.
    """
    begin = max(now - rise_after_s, history[0].at)
    moments = {begin, now}
    for step in history:
        moments.update(at for at in (step.at, step.at + fall_after_s) if begin <= at <= now)
    return min(_highest(history, at - fall_after_s, at) for at in moments)


def _highest(history: Sequence[Step], begin: float, end: float) -> Fraction:
    """The highest amount that was in force at any moment from one to another."""
    until = [step.at for step in history[1:]]
    amounts = [
        step.amount
        for step, over in zip(history, [*until, float("inf")])
        if step.at <= end and over > begin
    ]
    return max(amounts, default=history[0].amount)
