"""Bridge from other threads to the one thread that owns the asyncio loop."""

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
    """Call that the loop has not completed: it is not running, or timed out."""


class Bridge:
    """Event loop in a thread, from ``start`` to ``stop``."""

    def __init__(self) -> None:
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._thread: Optional[threading.Thread] = None

    def start(self) -> None:
        """Start the thread; return when its loop runs."""
        started = threading.Event()
        loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._run, args=(loop, started), name="asyncio", daemon=True
        )
        self._thread.start()
        started.wait()
        self._loop = loop

    def call(self, coroutine: Coroutine[Any, Any, Result], timeout_s: float) -> Result:
        """Run a coroutine in the loop and return its result; cancel it after the timeout."""
        loop = self._loop
        if loop is None:
            coroutine.close()
            raise BridgeError("the loop is not running")
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise BridgeError("would wait for itself")
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
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
        """Wait until the loop responds; raises ``BridgeError`` after the timeout."""
        self.call(asyncio.sleep(0), timeout_s)

    def call_soon(self, callback: Callable[[], object]) -> bool:
        """Schedule a callback in the loop's thread; return whether there is one."""
        loop = self._loop
        if loop is None:
            return False
        loop.call_soon_threadsafe(callback)
        return True

    def stop(self) -> None:
        """Cancel all tasks, and end the thread."""
        loop, self._loop = self._loop, None
        if loop is None or self._thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join(STOP_TIMEOUT_S)

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop, started: threading.Event) -> None:
        asyncio.set_event_loop(loop)
        loop.call_soon(started.set)
        try:
            loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            with contextlib.suppress(asyncio.TimeoutError):
                ended = asyncio.gather(*tasks, return_exceptions=True)
                loop.run_until_complete(asyncio.wait_for(ended, STOP_TIMEOUT_S / 2))
            loop.run_until_complete(asyncio.sleep(0))  # for closed connections to finish
            loop.close()
