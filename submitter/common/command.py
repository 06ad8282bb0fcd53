"""Starting programs: the only module of this package that does.

No shell, no input but what is given, an end to every wait. What a program is told on its command
line can be seen by every user of the machine, so nothing secret ever stands there.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Optional, Protocol

from submitter.common.errors import CommandFailed
from templates.common.errors import one_line

HEAD, TAIL = 40, 230  # characters of what a failed program complained of
LARGEST_OUTPUT = 256 * 1024 * 1024


def run(
    argv: Sequence[str],
    timeout: float = 60.0,
    stdin: str = "",
    environment: Optional[Mapping[str, str]] = None,
) -> str:
    """What the program wrote to standard output; ``CommandFailed`` unless it ended well.

    ``environment``: all of its variables; ours when not given.
    """
    try:
        done = subprocess.run(
            list(argv),
            input=stdin.encode(),
            capture_output=True,
            timeout=timeout,
            check=False,
            start_new_session=True,
            env=environment,
        )
    except subprocess.TimeoutExpired as late:
        output = (late.stdout or b"").decode(errors="replace")
        raise CommandFailed(argv[0], f"took longer than {timeout:g} s", output=output) from None
    except OSError as error:
        raise CommandFailed(argv[0], f"cannot be started: {error.strerror}") from None
    output = done.stdout[:LARGEST_OUTPUT].decode(errors="replace")
    if done.returncode != 0:
        said = _shortened(one_line(done.stderr.decode(errors="replace"), 100_000))
        how = f"exit code {done.returncode}"
        if done.returncode < 0:
            how = f"signal {-done.returncode}"
        words = f"{how}: {said}" if said else how
        raise CommandFailed(argv[0], words, done.returncode, output)
    return output


def _shortened(said: str) -> str:
    """How it begins and how it ends: what stands between may be all jobs of a pool."""
    return said if len(said) <= HEAD + TAIL else f"{said[:HEAD]} ... {said[-TAIL:]}"


class Child(Protocol):
    """A program that was started; whoever started it has to ask, or its number stays taken."""

    pid: int

    def poll(self) -> Optional[int]:
        """Its exit code, once it has ended."""


def start(argv: Sequence[str], output: str, keep: int) -> Child:
    """Start a program that outlives this one, in a session of its own.

    What it writes goes to a new file, for the owner alone; it inherits the descriptor ``keep``.
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
            pass_fds=(keep,),
        )
    except OSError as error:
        raise CommandFailed(argv[0], f"cannot be started: {error.strerror}") from None
    finally:
        os.close(log)
