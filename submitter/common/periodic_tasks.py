"""Steps of one pool's service, repeated in the event loop, each at its own pace."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Callable

from submitter.common.errors import SubmitterError
from templates.nats.requests import LinkError
from templates.program.recurring_error import RecurringError

logger = logging.getLogger(__name__)

Step = Callable[[], Awaitable[None]]


class PeriodicTasks:
    """One task for each step, from its ``start`` to ``stop``; an error ends none of them."""

    def __init__(self, pool: str) -> None:
        self._pool = pool
        self._tasks: list[asyncio.Task[None]] = []
        self._wakes: dict[str, asyncio.Event] = {}
        self._errors: dict[str, RecurringError] = {}
        self._stopping = False

    def start(self, name: str, step: Step, pause_s: Callable[[], float]) -> None:
        """Begin to repeat a step, the first time at once."""
        self._wakes[name] = asyncio.Event()
        work = self._repeat(name, step, pause_s)
        self._tasks.append(asyncio.create_task(work, name=f"{self._pool} {name}"))

    def wake(self, *names: str) -> None:
        """Cut the pauses of these steps short; what has not been started is left out."""
        for name in names:
            if name in self._wakes:
                self._wakes[name].set()

    async def stop(self) -> None:
        """Cancel all of them, and wait until they have ended."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def error(self, name: str) -> RecurringError:
        """Return the error of a step."""
        if name not in self._errors:
            what = f"pool={self._pool}: {name}"
            self._errors[name] = RecurringError(logger, what, f"{what}: works again")
        return self._errors[name]

    async def _repeat(self, name: str, step: Step, pause_s: Callable[[], float]) -> None:
        wake, failed = self._wakes[name], self.error(name)
        while not self._stopping:  # wait_for may swallow a cancellation
            wake.clear()
            try:
                await step()
            except LinkError:
                pass  # the connection logs it, and reconnects
            except (OSError, SubmitterError) as error:
                failed.set(str(error))
            except Exception as error:  # of any kind: the next round may succeed
                if failed.changes_to(repr(error)):
                    logger.exception("pool=%s: %s failed", self._pool, name)
            else:
                failed.clear()
            try:
                await asyncio.wait_for(wake.wait(), pause_s())
            except asyncio.TimeoutError:
                continue
