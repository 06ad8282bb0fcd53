"""Errors of what is repeated: told when they begin, change and end."""

from __future__ import annotations

import logging

import pytest

from templates.program.recurring_error import RecurringError

LOGGER = logging.getLogger("recurring")


def test_an_error_is_logged_when_it_begins_changes_and_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    error = RecurringError(LOGGER, "the door", "the door opens again")
    error.clear()
    for message in ("it is shut", "it is shut", "it is locked", "it is locked", "", ""):
        error.set(message)
        assert error.message == message
    assert caplog.messages == [
        "the door: it is shut",
        "the door: it is locked",
        "the door opens again",
    ]


def test_one_that_is_logged_elsewhere_ends_here(caplog: pytest.LogCaptureFixture) -> None:
    error = RecurringError(LOGGER, "", "it works again")
    assert [error.changes_to(message) for message in ("100 %s", "100 %s")] == [True, False]
    error.set("200 %s")
    error.clear()
    assert caplog.messages == ["200 %s", "it works again"]
