"""The loops that keep a pool's jobs going: what they say of trouble."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from submitter.errors import BackendUnavailable
from submitter.jobs import Keeper
from tests.submitter.fakes import site_of


def test_trouble_is_told_when_it_begins_changes_and_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each loop comes round every second or so, for as long as it takes."""
    away, odd = BackendUnavailable("it is away"), ValueError("odd")
    rounds: list[Exception | None] = [away, away, odd, odd, ValueError("odder"), None, None, odd]
    keeper = Keeper(site_of(tmp_path))

    async def live() -> None:
        over = asyncio.Event()

        async def step() -> None:
            trouble = rounds.pop(0) if rounds else None
            if not rounds:
                over.set()
            if trouble is not None:
                raise trouble

        keeper._wakes["look"] = asyncio.Event()
        task = asyncio.create_task(keeper._repeat("look", step, lambda: 0.0))
        await over.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with caplog.at_level(logging.WARNING, "submitter.jobs"):
        asyncio.run(live())
    told = [record.getMessage().removeprefix("pool=site: look") for record in caplog.records]
    assert told == [": it is away", " failed", " failed", ": works again", " failed"]
    assert caplog.text.count("Traceback") == 3
