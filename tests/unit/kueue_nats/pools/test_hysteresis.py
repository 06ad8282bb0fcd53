"""Capacity held steady, compared with what the words say, moment by moment."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kueue_nats.pools.hysteresis import (
    MAX_SAMPLES,
    History,
    Sample,
    append_sample,
    effective_amount,
)

Told = list[tuple[int, int]]  # (second, amount) as published


def history(told: Told, keep_s: float = 10**9) -> History:
    made: History = ()
    for at, amount in told:
        made = append_sample(made, at, Fraction(amount), keep_s)
    return made


def by_words(told: Told, now: int, rise: int, fall: int) -> int:
    """What counts, in quarters of a second: things happen at whole ones only."""
    first = 4 * told[0][0]

    def published(quarter: int) -> int:
        return [amount for at, amount in told if 4 * at <= quarter][-1]

    def after_falls(quarter: int) -> int:
        """A fall counts once nothing higher was published for so long."""
        # What ended in the first moment of that time was not published during it.
        begin = quarter - 4 * fall + (1 if fall else 0)
        return max(published(moment) for moment in range(max(begin, first), quarter + 1))

    # A rise counts once nothing lower counted for so long; what counts changes at whole seconds.
    begin = max(4 * (now - rise), first)
    return min(after_falls(moment) for moment in range(begin, 4 * now + 1, 2))


@st.composite
def publications(draw: st.DrawFn) -> Told:
    gaps = draw(st.lists(st.integers(1, 12), min_size=1, max_size=15))
    amounts = st.integers(0, 4)
    at, told = draw(st.integers(0, 5)), []
    for gap in gaps:
        told.append((at, draw(amounts)))
        at += gap
    return told


SPANS = st.integers(0, 20)


@given(told=publications(), later=st.integers(0, 30), rise=SPANS, fall=SPANS)
def test_what_counts_is_what_the_words_say(told: Told, later: int, rise: int, fall: int) -> None:
    now = told[-1][0] + later
    assert effective_amount(history(told), now, rise, fall) == by_words(told, now, rise, fall)


@given(told=publications(), later=st.integers(0, 30), rise=SPANS, fall=SPANS)
def test_what_is_forgotten_does_not_matter(told: Told, later: int, rise: int, fall: int) -> None:
    now = told[-1][0] + later
    short, whole = history(told, rise + fall), history(told)
    assert len(short) <= len(whole)
    assert effective_amount(short, now, rise, fall) == effective_amount(whole, now, rise, fall)


@given(told=publications(), later=st.integers(0, 30), rise=SPANS, fall=SPANS)
def test_nothing_counts_that_was_never_published(
    told: Told, later: int, rise: int, fall: int
) -> None:
    assert effective_amount(history(told), told[-1][0] + later, rise, fall) in {
        amount for _, amount in told
    }


@given(
    amount=st.integers(0, 10), times=st.sets(st.integers(0, 99), min_size=1), rise=SPANS, fall=SPANS
)
def test_what_does_not_change_is_itself_and_costs_nothing(
    amount: int, times: set[int], rise: int, fall: int
) -> None:
    made = history([(at, amount) for at in sorted(times)])
    assert made == (Sample(min(times), Fraction(amount)),)
    assert effective_amount(made, max(times), rise, fall) == amount


@pytest.mark.parametrize(
    ("told", "now", "rise", "fall", "counts"),
    [
        ([(0, 5)], 0, 10, 0, 5),  # the first publication at once
        ([(0, 5), (20, 3)], 20, 10, 0, 3),  # a fall at once
        ([(0, 5), (20, 3)], 24, 10, 5, 5),  # or when it has held
        ([(0, 5), (20, 3)], 25, 10, 5, 3),
        ([(0, 3), (20, 5)], 29, 10, 0, 3),  # a rise when it has held
        ([(0, 3), (20, 5)], 30, 10, 0, 5),
        ([(0, 3), (20, 5)], 20, 0, 0, 5),
        ([(0, 3), (20, 5), (25, 4)], 30, 10, 0, 4),  # as far as it has held
        ([(0, 3), (20, 5), (25, 2), (26, 5)], 35, 10, 0, 2),  # a dip begins it anew
        ([(0, 3), (20, 5), (25, 2), (26, 5)], 36, 10, 0, 5),
        ([(0, 5), (20, 0), (21, 5)], 21, 10, 5, 5),  # a dip that is shorter than fall_after is none
        ([(0, 5), (20, 0), (21, 5)], 21, 10, 0, 0),
        ([(0, 5), (1, 4), (2, 5), (3, 4)], 3, 10, 0, 4),  # at the start, too
        ([(10, 5)], 3, 10, 0, 5),  # a clock that was set back
    ],
)
def test_examples(told: Told, now: int, rise: int, fall: int, counts: int) -> None:
    assert effective_amount(history(told), now, rise, fall) == counts


def test_a_history_is_bounded() -> None:
    wobbling = [(second, second % 2) for second in range(1000)]
    made = history(wobbling)
    assert len(made) == MAX_SAMPLES
    assert made[-1] == Sample(999, Fraction(1))
    assert effective_amount(made, 999, 10, 0) == 0
