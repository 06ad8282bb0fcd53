"""The key that root hands over as standard input, and the memory that it is then in."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sources import REPO

pytestmark = pytest.mark.security

OTHER_USER = 65534
SECRET = "hunter2"
# Says what the options hold, what standard input still tells it and a child, and whether others
# of its user may look into it.
PROGRAM = """
import ctypes, os, subprocess, sys
from submitter.cli import handover
from submitter.config.settings import Nats, Settings
from templates.common.errors import ConfigError
if os.geteuid() == 0:
    os.setgroups([]); os.setgid({user}); os.setuid({user})
prctl = ctypes.CDLL(None).prctl
prctl(4, 1, 0, 0, 0)  # as if it had been started as that user
try:
    options = handover.take_options(Settings(Nats(servers=("nats://x",), {key}="{file}")))
except ConfigError as error:
    sys.exit(str(error))
assert options.secret not in repr(options) or not options.secret
left = sys.stdin.read() + subprocess.run(["cat"], capture_output=True, text=True).stdout
print([options.secret, left, bool(prctl(3, 0, 0, 0, 0))])
"""


def told(file: Path, given: object, key: str = "nkey_file") -> subprocess.CompletedProcess[str]:
    program = PROGRAM.format(user=OTHER_USER, key=key, file=file)
    options = {"input": given} if isinstance(given, str) else {"stdin": given}
    command = [sys.executable, "-c", program]
    environment = {**os.environ, "PYTHONPATH": str(REPO)}
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        command, capture_output=True, text=True, check=False, env=environment, **options
    )


@pytest.fixture
def key() -> Iterator[Path]:
    """A file that the program cannot open, in a folder that it can."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        file = Path(folder, "key")
        file.write_text(f"{SECRET}\n")
        file.chmod(0o600 if os.geteuid() == 0 else 0)
        yield file


@pytest.mark.parametrize("kind", ["password_file", "token_file", "nkey_file", "credentials_file"])
def test_it_comes_through_a_pipe(key: Path, kind: str) -> None:
    assert told(key, f"{SECRET}\n", kind).stdout == f"{[SECRET, '', False]}\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can open a file for another user")
def test_it_comes_as_an_open_file(key: Path) -> None:
    with key.open("rb") as file:
        assert told(key, file).stdout == f"{[SECRET, '', False]}\n"


def test_without_one_nothing_is_taken(key: Path) -> None:
    nothing = f"{['', 'other', True]}\n"
    assert told(key, subprocess.DEVNULL).stdout == nothing.replace("other", "")
    assert told(key.parent / "nothing", "other").stdout == nothing
    key.chmod(0o644)
    assert told(key, "other").stdout == nothing


def test_an_empty_one_is_told(key: Path) -> None:
    done = told(key, "")
    assert done.stderr == f"nats.nkey_file: {key}: nothing of it came as standard input\n"
