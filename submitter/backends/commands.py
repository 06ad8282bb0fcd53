"""A batch system's programs, started as the site wants it; no answer is ``BackendUnavailable``."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Optional

from submitter.common import command
from submitter.common.errors import BackendUnavailable, CommandFailed, SubmitterError

_AT_ONCE = 1000  # jobs that are named in one question


class CommandRunner:
    """The programs of one pool's batch system; whatever they are asked blocks."""

    def __init__(
        self, paths: object, prefix: Sequence[str], environment: Mapping[str, str], timeout_s: float
    ) -> None:
        self._paths = paths  # a dataclass: the program's name -> what is started for it
        self._prefix = prefix
        self._environment = environment
        self._timeout_s = timeout_s
        self._answers_since: Optional[float] = None

    def run(self, program: str, arguments: Sequence[str], stdin: str = "") -> str:
        """What a program prints; ``CommandFailed`` unless it ended well.

        ``BackendUnavailable`` if it was not even started.
        """
        argv = [*self._prefix, getattr(self._paths, program), *arguments]
        return command.run(argv, self._timeout_s, stdin, self._environment)

    def ask(self, program: str, *arguments: str) -> str:
        """The answer to a question that changes nothing."""
        try:
            answer = self.run(program, arguments)
        except (CommandFailed, BackendUnavailable) as error:
            self._answers_since = None
            raise BackendUnavailable(str(error)) from None
        if self._answers_since is None:
            self._answers_since = time.monotonic()
        return answer

    def answers_for_s(self) -> float:
        """How long it has answered every question, the last one included."""
        return time.monotonic() - self._answers_since if self._answers_since is not None else 0.0


def chunks(items: Iterable[str]) -> list[list[str]]:
    """As many as are named in one question."""
    every = list(items)
    return [every[start : start + _AT_ONCE] for start in range(0, len(every), _AT_ONCE)]


def meaning(
    words: str, table: Iterable[tuple[str, type[SubmitterError]]]
) -> Optional[type[SubmitterError]]:
    """What a program's complaint stands for: the first text of the table that it holds counts."""
    return next((kind for text, kind in table if text.lower() in words.lower()), None)
