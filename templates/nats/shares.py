"""Shares of the loop's time: what one pool sends must not keep the loop from all others."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator
from typing import Callable

from nats.aio.msg import Msg

SHARE = 0.2  # of the loop's time, for the messages of one pool
SAVED_S = 2.0  # what one that was quiet may take at once
MESSAGE_S = 0.0001  # what a message costs besides being read
MOST_WAITING = 64  # messages of one subject that wait for their turn
MOST_WAITING_BYTES = 4 * 1024 * 1024


class Share:
    """Time that the messages of one pool may take."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._saved_s, self._at = SAVED_S, clock()

    def spend(self, seconds: float) -> None:
        """Take the time that a message has cost."""
        self._update()
        self._saved_s -= seconds

    @contextlib.contextmanager
    def spending(self) -> Iterator[None]:
        """Take the CPU time that the block needs, in which nothing may be awaited."""
        began = time.thread_time()
        try:
            yield
        finally:
            self.spend(time.thread_time() - began)

    def pause_s(self) -> float:
        """Return how long the next message has to wait."""
        self._update()
        return max(-self._saved_s / SHARE, 0.0)

    def _update(self) -> None:
        now = self._clock()
        self._saved_s = min(self._saved_s + (now - self._at) * SHARE, SAVED_S)
        self._at = now


class WaitingMessages:
    """Messages of one subject that wait for their turn; the oldest are dropped first."""

    def __init__(self) -> None:
        self._messages: deque[Msg] = deque()
        self._size = 0
        self.is_handled = False  # whether a task takes them, one after the other
        self.complained_at = float("-inf")

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, message: Msg) -> None:
        """Append a message."""
        self._messages.append(message)
        self._size += len(message.data)
        while len(self._messages) > MOST_WAITING or self._size > MOST_WAITING_BYTES:
            self.take()

    def take(self) -> Msg:
        """Remove and return the oldest message."""
        message = self._messages.popleft()
        self._size -= len(message.data)
        return message
