"""What one pool sends: so much of it waits, and it takes so much of the loop's time."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from nats.aio.msg import Msg

from templates.nats import shares
from templates.nats.shares import SAVED_S, SHARE, Share, WaitingMessages

pytestmark = pytest.mark.security


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def message(size: int) -> Msg:
    return Msg(_client=Mock(), data=bytes(size))


def test_a_pool_gets_its_share_however_much_it_sends() -> None:
    clock = Clock()
    share = Share(clock)
    spent = 0.0
    began = clock.now
    for _ in range(10_000):
        clock.now += share.pause_s()
        share.spend(0.05)
        spent += 0.05
    assert spent <= SAVED_S + (clock.now - began) * SHARE + 0.051


def test_a_pool_that_sends_little_never_waits() -> None:
    clock = Clock()
    share = Share(clock)
    for _ in range(10_000):
        assert share.pause_s() == 0
        share.spend(0.05)
        clock.now += 0.05 / SHARE


def test_what_was_saved_is_not_more_for_a_longer_silence() -> None:
    clock = Clock()
    share = Share(clock)
    clock.now += 1e6
    share.spend(SAVED_S)
    assert share.pause_s() == 0
    share.spend(SHARE)
    assert share.pause_s() == pytest.approx(1)


def test_a_block_that_fails_has_cost_time_as_well() -> None:
    clock = Clock()
    share = Share(clock)
    share.spend(SAVED_S)
    with pytest.raises(ZeroDivisionError), share.spending():
        raise ZeroDivisionError
    assert share.pause_s() > 0


@pytest.mark.parametrize("size", [0, 1, 1_000_000, shares.MOST_WAITING_BYTES])
def test_so_much_waits_and_the_newest_stays(size: int) -> None:
    waiting = WaitingMessages()
    for _ in range(1000):
        waiting.put(message(size))
    waiting.put(last := message(3))
    assert len(waiting) <= shares.MOST_WAITING
    kept = [waiting.take() for _ in range(len(waiting))]
    assert kept[-1] is last
    assert sum(len(one.data) for one in kept) <= shares.MOST_WAITING_BYTES
    assert not waiting
