"""The one thread that owns the asyncio loop; every other thread hands coroutines over to it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any, Callable, Optional, TypeVar

from templates.common.errors import InterlinkNatsError

STOP_TIMEOUT_S = 10.0

Result = TypeVar("Result")


class BridgeError(InterlinkNatsError):
    """The loop did not do it: it is not there, or had no time for it."""


class Bridge:
    """A loop in a thread, from ``start`` to ``stop``."""

    def __init__(self) -> None:
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._thread: Optional[threading.Thread] = None

    def start(self) -> None:
        """Start the thread; returns when its loop runs."""
        running = threading.Event()
        loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._run, args=(loop, running), name="asyncio", daemon=True
        )
        self._thread.start()
        running.wait()
        self._loop = loop

    def call(self, work: Coroutine[Any, Any, Result], timeout_s: float) -> Result:
        """Run a coroutine there and wait for its result; it is cancelled when the time is over."""
        loop = self._loop
        if loop is None:
            work.close()
            raise BridgeError("the loop is not running")
        if threading.current_thread() is self._thread:
            work.close()
            raise BridgeError("would wait for itself")
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result(timeout_s)
        except concurrent.futures.CancelledError:
            raise BridgeError("the plugin is stopping") from None
        except TimeoutError:
            if future.done():
                raise
            future.cancel()
            raise BridgeError(f"not done within {timeout_s:g} s") from None

    def ping(self, timeout_s: float) -> None:
        """Return when the loop has answered; raises ``BridgeError`` if it does not in time."""
        self.call(asyncio.sleep(0), timeout_s)

    def soon(self, callback: Callable[[], object]) -> bool:
        """Have something called in the loop's thread; return whether there is one."""
        loop = self._loop
        if loop is None:
            return False
        loop.call_soon_threadsafe(callback)
        return True

    def stop(self) -> None:
        """Cancel what still runs, and end the thread."""
        loop, self._loop = self._loop, None
        if loop is None or self._thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join(STOP_TIMEOUT_S)

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop, running: threading.Event) -> None:
        asyncio.set_event_loop(loop)
        loop.call_soon(running.set)
        try:
            loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            with contextlib.suppress(asyncio.TimeoutError):
                ended = asyncio.gather(*tasks, return_exceptions=True)
                loop.run_until_complete(asyncio.wait_for(ended, STOP_TIMEOUT_S / 2))
            loop.run_until_complete(asyncio.sleep(0))  # connections that were closed say goodbye
            loop.close()
