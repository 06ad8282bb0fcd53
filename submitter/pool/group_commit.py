"""Group commit: items that arrive while the disk is busy share the next sync."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Callable, Generic, Optional, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_Pending = tuple[Sequence[Item], asyncio.Future[Sequence[Result]]]

LARGEST_BATCH = 256


class GroupCommit(Generic[Item, Result]):
    """A blocking function, called with the items of many callers at a time."""

    def __init__(self, work: Callable[[Sequence[Item]], Sequence[Result]]) -> None:
        self._work = work
        self._queue: list[_Pending[Item, Result]] = []
        self._worker: Optional[asyncio.Task[None]] = None

    async def put(self, items: Sequence[Item]) -> Sequence[Result]:
        """Wait for the results of these items and return them; raise what the function raised."""
        if not items:
            return []
        results: asyncio.Future[Sequence[Result]] = asyncio.get_running_loop().create_future()
        self._queue.append((items, results))
        if self._worker is None:
            self._worker = asyncio.create_task(self._run())
        return await results

    async def drain(self) -> None:
        """Wait until every item that was put has its result."""
        while self._worker is not None:
            await asyncio.gather(self._worker, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while self._queue:
                await self._commit(self._take_batch())
        finally:
            self._worker = None

    def _take_batch(self) -> list[_Pending[Item, Result]]:
        """Remove and return the oldest pending calls that fit into one batch; at least one."""
        room, taken = LARGEST_BATCH, 0
        while taken < len(self._queue) and (room > 0 or not taken):
            room -= len(self._queue[taken][0])
            taken += 1
        batch, self._queue = self._queue[:taken], self._queue[taken:]
        return batch

    async def _commit(self, batch: Sequence[_Pending[Item, Result]]) -> None:
        try:
            merged = [item for items, _ in batch for item in items]
            results = await asyncio.to_thread(self._work, merged)
        except Exception as error:  # noqa: BLE001 (raised again where the results are awaited)
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        start = 0
        for items, future in batch:
            end = start + len(items)
            if not future.done():
                future.set_result(results[start:end])
            start = end
