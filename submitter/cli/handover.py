"""The secret for NATS, handed over by root: jobs run as our user, and are not to read it.

systemd, or a pipe of an admin's, opens the file as root and makes it our standard input. We keep
what it holds in memory only, where no other process of our user can look.
"""

from __future__ import annotations

import ctypes
import os
import stat

from submitter.cli.config_file import secret_files
from submitter.config.settings import PROGRAM, Settings
from templates.common.errors import ConfigError
from templates.nats.options import LinkSettings
from templates.program.settings import link_settings

_PR_SET_DUMPABLE = 4
_STANDARD_INPUT = 0
_LARGEST = 64 * 1024


def take_options(settings: Settings) -> LinkSettings:
    """Return the options of the connection, with the secret if it is handed over.

    Raise ``ConfigError`` if nothing is. No program that is started later finds it.
    """
    options = link_settings(settings.nats, PROGRAM)
    for key, path in secret_files(settings.nats):
        if not (_is_forbidden(path) and _is_given()):
            continue
        _hide_memory()
        with open(_STANDARD_INPUT, "rb", closefd=False) as given:
            secret = given.read(_LARGEST).decode(errors="replace").strip()
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, _STANDARD_INPUT)
        os.close(nothing)
        if not secret:
            raise ConfigError(f"nats.{key}", f"{path}: nothing of it came as standard input")
        return options._replace(secret=secret)
    return options


def _is_forbidden(path: str) -> bool:
    try:
        with open(path, "rb"):
            return False
    except OSError as error:
        return isinstance(error, PermissionError)


def _is_given() -> bool:
    """Return whether standard input is a file or a pipe."""
    try:
        mode = os.fstat(_STANDARD_INPUT).st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) or stat.S_ISFIFO(mode)


def _hide_memory() -> None:
    """Forbid other processes of our user to look into this one, and files of its memory."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
