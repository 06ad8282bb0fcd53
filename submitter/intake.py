"""Group commit: what comes in while the disk is busy shares the next wait for the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Callable, Generic, Optional, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")

LARGEST_BATCH = 256


class Intake(Generic[Item, Answer]):
    """Hands items to a blocking function, many at a time, and each answer to who brought it."""

    def __init__(self, work: Callable[[Sequence[Item]], Sequence[Answer]]) -> None:
        self._work = work
        self._queue: list[tuple[Item, asyncio.Future[Answer]]] = []
        self._worker: Optional[asyncio.Task[None]] = None

    async def put(self, item: Item) -> Answer:
        """The answer, when it is there; raises what the function raised."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._queue.append((item, answer))
        if self._worker is None:
            self._worker = asyncio.create_task(self._run())
        return await answer

    async def drain(self) -> None:
        """Wait until everything that was put has its answer."""
        while self._worker is not None:
            await asyncio.gather(self._worker, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while self._queue:
                batch, self._queue = self._queue[:LARGEST_BATCH], self._queue[LARGEST_BATCH:]
                await self._settle(batch)
        finally:
            self._worker = None

    async def _settle(self, batch: Sequence[tuple[Item, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await asyncio.to_thread(self._work, [item for item, _ in batch])
        except Exception as error:  # noqa: BLE001 (raised again where the answer is awaited)
            for _, waiting in batch:
                if not waiting.done():
                    waiting.set_exception(error)
            return
        for (_, waiting), answer in zip(batch, answers):
            if not waiting.done():
                waiting.set_result(answer)
