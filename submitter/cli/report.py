"""The lines of ``interlink-submitter check``."""

from __future__ import annotations

from typing import Callable

from templates.common.errors import one_line


class Report:
    """Writes a line for each thing that was tried, and counts the mistakes."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self.mistakes = 0

    def ok(self, what: str, words: str) -> None:
        """It is as it should be."""
        self._line("ok   ", what, words)

    def note(self, what: str, words: str) -> None:
        """Nobody can tell from here whether it is."""
        self._line("note ", what, words)

    def wrong(self, what: str, words: str, mend: str) -> None:
        """It is not; ``mend`` says what to do."""
        self.mistakes += 1
        self._line("WRONG", what, f"{words}. To mend it: {mend}")

    def _line(self, mark: str, what: str, words: str) -> None:
        self._write(f"{mark} {what}: {one_line(words, 1000)}\n")
