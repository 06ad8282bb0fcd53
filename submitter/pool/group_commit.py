"""Group commit: what comes in while the disk is busy shares the next wait for the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Callable, Generic, Optional, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_Brought = tuple[Sequence[Item], asyncio.Future[Sequence[Answer]]]

LARGEST_BATCH = 256


class Intake(Generic[Item, Answer]):
    """Hands items to a blocking function, many at a time, and the answers to who brought them."""

    def __init__(self, work: Callable[[Sequence[Item]], Sequence[Answer]]) -> None:
        self._work = work
        self._queue: list[_Brought[Item, Answer]] = []
        self._worker: Optional[asyncio.Task[None]] = None

    async def put(self, items: Sequence[Item]) -> Sequence[Answer]:
        """Their answers, when they are there; raises what the function raised."""
        if not items:
            return []
        answers: asyncio.Future[Sequence[Answer]] = asyncio.get_running_loop().create_future()
        self._queue.append((items, answers))
        if self._worker is None:
            self._worker = asyncio.create_task(self._run())
        return await answers

    async def drain(self) -> None:
        """Wait until everything that was put has its answer."""
        while self._worker is not None:
            await asyncio.gather(self._worker, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while self._queue:
                await self._settle(self._batch())
        finally:
            self._worker = None

    def _batch(self) -> list[_Brought[Item, Answer]]:
        """Those that have waited longest, as many as go together; at least one."""
        room, taken = LARGEST_BATCH, 0
        while taken < len(self._queue) and (room > 0 or not taken):
            room -= len(self._queue[taken][0])
            taken += 1
        batch, self._queue = self._queue[:taken], self._queue[taken:]
        return batch

    async def _settle(self, batch: Sequence[_Brought[Item, Answer]]) -> None:
        try:
            together = [item for items, _ in batch for item in items]
            answers = await asyncio.to_thread(self._work, together)
        except Exception as error:  # noqa: BLE001 (raised again where the answers are awaited)
            for _, waiting in batch:
                if not waiting.done():
                    waiting.set_exception(error)
            return
        start = 0
        for items, waiting in batch:
            end = start + len(items)
            if not waiting.done():
                waiting.set_result(answers[start:end])
            start = end
