"""HTCondor's programs, started as the site wants it; no answer is ``BackendUnavailable``."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Optional

from submitter import command
from submitter.backends.htcondor_options import Options
from submitter.errors import BackendUnavailable, CommandFailed
from submitter.settings import environment_with

_AT_ONCE = 1000  # jobs in one expression


class Commands:
    """The programs of one pool's HTCondor; whatever they are asked blocks."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._environment = environment_with(options.environment, ())
        self._answers_since: Optional[float] = None

    def run(self, program: str, arguments: Sequence[str], stdin: str = "") -> str:
        """What a program prints; ``CommandFailed`` unless it ended well."""
        name = getattr(self._options.programs, program)
        argv = [*self._options.prefix, name, *arguments]
        return command.run(argv, self._options.timeout_s, stdin, self._environment)

    def ask(self, program: str, *arguments: str) -> str:
        """The answer to a question that changes nothing."""
        try:
            answer = self.run(program, arguments)
        except CommandFailed as error:
            self._answers_since = None
            raise BackendUnavailable(str(error)) from None
        if self._answers_since is None:
            self._answers_since = time.monotonic()
        return answer

    def answers_for_s(self) -> float:
        """How long it has answered every question, the last one included."""
        return time.monotonic() - self._answers_since if self._answers_since is not None else 0.0


def chunks(items: Iterable[str]) -> list[list[str]]:
    """As many as go into one expression."""
    every = list(items)
    return [every[start : start + _AT_ONCE] for start in range(0, len(every), _AT_ONCE)]
