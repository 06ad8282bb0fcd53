"""The loops of a pool: what they say of errors, and that nothing but a stop ends them."""

from __future__ import annotations

import asyncio
import logging

import pytest

from submitter.common.errors import BackendUnavailable
from submitter.common.periodic_tasks import PeriodicTasks
from templates.nats.requests import NotConnected


def test_an_error_is_logged_when_it_begins_changes_and_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each loop comes round every second or so, for as long as it takes."""
    away, odd, apart = BackendUnavailable("it is away"), ValueError("odd"), NotConnected("apart")
    rounds: list[Exception | None] = [away, away, odd, odd, ValueError("odder"), None, apart, odd]

    async def live() -> None:
        loops = PeriodicTasks("site")
        over = asyncio.Event()

        async def step() -> None:
            error = rounds.pop(0) if rounds else None
            if not rounds:
                over.set()
            if error is not None:
                raise error

        loops.start("look", step, lambda: 0.0)
        await over.wait()
        await loops.stop()

    with caplog.at_level(logging.WARNING, "submitter.common.periodic_tasks"):
        asyncio.run(live())
    told = [record.getMessage().removeprefix("pool=site: look") for record in caplog.records]
    assert told == [": it is away", " failed", " failed", ": works again", " failed"]
    assert caplog.text.count("Traceback") == 3


def test_each_has_its_own_pace_and_is_awoken_by_name() -> None:
    rounds = {"quick": 0, "slow": 0, "patient": 0}

    async def live() -> None:
        loops = PeriodicTasks("site")
        loops.wake("quick", "nobody")
        awoken = asyncio.Event()

        def step_of(name: str) -> None:
            async def step() -> None:
                rounds[name] += 1
                if rounds["quick"] > 10 and rounds["slow"] == 2:
                    awoken.set()

            loops.start(name, step, lambda: 0.0 if name == "quick" else 3600.0)

        for name in rounds:
            step_of(name)
        while rounds["quick"] < 5:
            await asyncio.sleep(0)
        assert (rounds["slow"], rounds["patient"]) == (1, 1)
        loops.wake("slow")
        await awoken.wait()
        await loops.stop()
        stopped = dict(rounds)
        await asyncio.sleep(0.01)
        assert rounds == stopped

    asyncio.run(asyncio.wait_for(live(), 30))
    assert rounds["patient"] == 1
