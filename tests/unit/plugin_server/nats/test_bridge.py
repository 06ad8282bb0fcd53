"""The thread with the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from plugin_server.nats.bridge import Bridge, BridgeError


@pytest.fixture
def bridge() -> Iterator[Bridge]:
    found = Bridge()
    found.start()
    yield found
    found.stop()


async def name() -> str:
    return threading.current_thread().name


def test_coroutines_run_in_its_thread_and_their_results_come_back(bridge: Bridge) -> None:
    assert bridge.call(name(), 5) == "asyncio"


def test_errors_come_back_too(bridge: Bridge) -> None:
    async def fail() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        bridge.call(fail(), 5)


def test_what_takes_too_long_is_cancelled(bridge: Bridge) -> None:
    cancelled = threading.Event()

    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    with pytest.raises(BridgeError, match=r"not done within 0\.05 s"):
        bridge.call(wait(), 0.05)
    assert cancelled.wait(5)


def test_its_own_thread_must_not_wait_for_it(bridge: Bridge) -> None:
    async def reenter() -> None:
        bridge.call(name(), 1)

    with pytest.raises(BridgeError, match="would wait for itself"):
        bridge.call(reenter(), 5)


def test_who_waits_is_told_when_it_stops() -> None:
    bridge = Bridge()
    with pytest.raises(BridgeError, match="not running"):
        bridge.call(name(), 1)
    bridge.start()
    errors: list[str] = []
    started = threading.Event()

    async def wait() -> None:
        started.set()
        await asyncio.sleep(60)

    def call() -> None:
        try:
            bridge.call(wait(), 60)
        except BridgeError as error:
            errors.append(str(error))

    thread = threading.Thread(target=call)
    thread.start()
    assert started.wait(5)
    bridge.stop()
    thread.join(5)
    assert errors == ["the plugin is stopping"]
    bridge.call_soon(errors.clear)
    bridge.stop()
    assert len(errors) == 1
