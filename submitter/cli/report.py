"""The lines of ``interlink-submitter check``."""

from __future__ import annotations

from typing import Callable

from templates.common.errors import one_line


class Report:
    """A report with one line for each check, and the number of mistakes."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self.mistakes = 0

    def ok(self, subject: str, message: str) -> None:
        """Report what is as it should be."""
        self._line("ok   ", subject, message)

    def note(self, subject: str, message: str) -> None:
        """Report what cannot be checked from here."""
        self._line("note ", subject, message)

    def wrong(self, subject: str, message: str, hint: str) -> None:
        """Report a mistake; the hint says how to correct it."""
        self.mistakes += 1
        self._line("WRONG", subject, f"{message}. To mend it: {hint}")

    def _line(self, mark: str, subject: str, message: str) -> None:
        self._write(f"{mark} {subject}: {one_line(message, 1000)}\n")
