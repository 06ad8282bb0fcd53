"""Functions that are called in threads of their own: errors are logged once, and end nothing."""

from __future__ import annotations

import logging
import threading

import pytest

from plugin_server.common.periodic_thread import Poller
from templates.common.errors import InterlinkNatsError


def test_no_error_ends_it_and_each_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    away, odd = InterlinkNatsError("it is away"), ValueError("odd")
    rounds: list[Exception | None] = [away, away, odd, odd, None, None, odd]
    over = threading.Event()

    def look() -> None:
        error = rounds.pop(0) if rounds else None
        if not rounds:
            over.set()
        if error is not None:
            raise error

    poller = Poller("sky", look, lambda: 0.0 if rounds else 3600.0, "answers again")
    with caplog.at_level(logging.WARNING, "plugin_server.common.periodic_thread"):
        poller.start()
        assert over.wait(30)
        poller.stop(30)
    assert poller.is_stopping
    told = [record.getMessage() for record in caplog.records]
    assert told == ["sky: it is away", "sky failed", "sky: answers again", "sky failed"]
    assert caplog.text.count("Traceback") == 2


def test_one_that_was_never_started_can_be_stopped() -> None:
    poller = Poller("sky", lambda: None, lambda: 0.0)
    poller.stop()
    assert poller.is_stopping
