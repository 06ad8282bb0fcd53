"""Running a batch system's programs, as the pool's options configure them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Optional

from submitter.common import command
from submitter.common.errors import BackendUnavailable, CommandFailed, SubmitterError

_CHUNK_SIZE = 1000  # jobs that are named on one command line


class CommandRunner:
    """The programs of one pool's batch system; every call blocks."""

    def __init__(
        self, paths: object, prefix: Sequence[str], environment: Mapping[str, str], timeout_s: float
    ) -> None:
        self._paths = paths  # a dataclass: the program's name -> its path
        self._prefix = prefix
        self._environment = environment
        self._timeout_s = timeout_s
        self._responding_since: Optional[float] = None

    def run(self, program: str, arguments: Sequence[str], stdin: str = "") -> str:
        """Run a program and return its output.

        Raise ``CommandFailed`` if it fails, ``BackendUnavailable`` if it was not even started.
        """
        argv = [*self._prefix, getattr(self._paths, program), *arguments]
        return command.run(argv, self._timeout_s, stdin, self._environment)

    def query(self, program: str, *arguments: str) -> str:
        """Run a program that changes nothing; raise ``BackendUnavailable`` if it fails."""
        try:
            output = self.run(program, arguments)
        except (CommandFailed, BackendUnavailable) as error:
            self._responding_since = None
            raise BackendUnavailable(str(error)) from None
        if self._responding_since is None:
            self._responding_since = time.monotonic()
        return output

    def responding_for_s(self) -> float:
        """Return for how long every query, the last one included, has succeeded."""
        if self._responding_since is None:
            return 0.0
        return time.monotonic() - self._responding_since


def chunks(items: Iterable[str]) -> list[list[str]]:
    """Split items into as many as fit on one command line."""
    every = list(items)
    return [every[start : start + _CHUNK_SIZE] for start in range(0, len(every), _CHUNK_SIZE)]


def classify_error(
    message: str, table: Iterable[tuple[str, type[SubmitterError]]]
) -> Optional[type[SubmitterError]]:
    """Return the error class of the first text of the table that occurs in a message."""
    return next((kind for text, kind in table if text.lower() in message.lower()), None)
