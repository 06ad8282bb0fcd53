"""Starting programs: the only module of this package that does.

No shell, no input but what is given, a timeout for every wait. Every user of the machine can see
command lines, so they never contain a secret.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Optional, Protocol

from submitter.common.errors import CommandFailed
from templates.common.errors import one_line

HEAD, TAIL = 40, 230  # characters kept of what a failed program wrote to standard error
LARGEST_OUTPUT = 256 * 1024 * 1024


def run(
    argv: Sequence[str],
    timeout: float = 60.0,
    stdin: str = "",
    environment: Optional[Mapping[str, str]] = None,
) -> str:
    """Run a program and return its standard output; raise ``CommandFailed`` if it fails.

    ``environment``: all of its variables; ours if None.
    """
    try:
        completed = subprocess.run(
            list(argv),
            input=stdin.encode(),
            capture_output=True,
            timeout=timeout,
            check=False,
            start_new_session=True,
            env=environment,
        )
    except subprocess.TimeoutExpired as timeout_error:
        output = (timeout_error.stdout or b"").decode(errors="replace")
        raise CommandFailed(argv[0], f"took longer than {timeout:g} s", output=output) from None
    except OSError as error:
        raise CommandFailed(argv[0], f"cannot be started: {error.strerror}") from None
    output = completed.stdout[:LARGEST_OUTPUT].decode(errors="replace")
    if completed.returncode != 0:
        stderr = _shorten(one_line(completed.stderr.decode(errors="replace"), 100_000))
        how = f"exit code {completed.returncode}"
        if completed.returncode < 0:
            how = f"signal {-completed.returncode}"
        message = f"{how}: {stderr}" if stderr else how
        raise CommandFailed(argv[0], message, completed.returncode, output)
    return output


def _shorten(text: str) -> str:
    """Return the beginning and the end: the names of all jobs may stand in between."""
    return text if len(text) <= HEAD + TAIL else f"{text[:HEAD]} ... {text[-TAIL:]}"


class Child(Protocol):
    """A program that was started; it has to be polled, or it stays a zombie."""

    pid: int

    def poll(self) -> Optional[int]:
        """Return the exit code, once it has ended."""


def start(argv: Sequence[str], output: str, inherited: int) -> Child:
    """Start a program that outlives this one, in a session of its own.

    Its output goes to a new file, for the owner alone; it inherits the descriptor ``inherited``.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    log = os.open(output, flags, 0o600)
    try:
        return subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
            pass_fds=(inherited,),
        )
    except OSError as error:
        raise CommandFailed(argv[0], f"cannot be started: {error.strerror}") from None
    finally:
        os.close(log)
