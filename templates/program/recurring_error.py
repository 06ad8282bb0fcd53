"""Errors of a repeated attempt, logged when they begin, change and end."""

from __future__ import annotations

import logging


class RecurringError:
    """Error of one repeated attempt; set after each."""

    def __init__(self, logger: logging.Logger, failing: str, works_again: str) -> None:
        """``failing`` stands before each message, unless it is empty."""
        self._logger = logger
        self._failing = failing
        self._works_again = works_again
        self.message = ""
        """The error of the last attempt; empty if there was none."""

    def set(self, message: str) -> None:
        """Log the message if it is a new one; an empty one means that the attempt succeeded."""
        if not self.changes_to(message):
            return
        if not message:
            self._logger.warning("%s", self._works_again)
        elif self._failing:
            self._logger.warning("%s: %s", self._failing, message)
        else:
            self._logger.warning("%s", message)

    def clear(self) -> None:
        """Note that the attempt succeeded."""
        self.set("")

    def changes_to(self, message: str) -> bool:
        """Take the message without logging it; return whether it is a new one."""
        before, self.message = self.message, message
        return message != before
