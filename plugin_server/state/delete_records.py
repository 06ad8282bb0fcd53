"""Deletions as files: what the plugin has promised to interLink survives its own end."""

from __future__ import annotations

import json
import logging
import os
import tempfile
import threading
from pathlib import Path
from typing import NamedTuple, Optional, Protocol

from templates.common.errors import PodRejected
from templates.common.names import check_token, uid_of
from templates.common.validation import LARGEST

logger = logging.getLogger(__name__)

_SUFFIX = ".delete"


class Intent(NamedTuple):
    """A job that its site has yet to be told to end."""

    pool: str
    job: str
    grace_period_s: Optional[int]  # None: the job's own


class IntentKeeper(Protocol):
    """Where deletions are kept beside this process's memory."""

    def add(self, intent: Intent) -> None:
        """Keep one."""

    def remove(self, job: str) -> None:
        """Forget one."""

    def load(self) -> list[Intent]:
        """All that are kept."""


class IntentFiles:
    """One small file per deletion that its site has not confirmed."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory) if directory else None
        self._lock = threading.Lock()

    def add(self, intent: Intent) -> None:
        """Write it down, for good; a directory that cannot be written to is said and survived."""
        if self._directory is None:
            return
        try:
            self._write(self._directory, intent)
        except OSError as error:
            logger.error(
                "%s: its deletion is kept in memory only: %s: %s",
                intent.job,
                self._directory,
                error.strerror,
                extra={"job": intent.job},
            )

    def _write(self, directory: Path, intent: Intent) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=directory, prefix=".")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(intent._asdict(), file)
            file.flush()
            os.fsync(file.fileno())
        Path(name).rename(directory / f"{intent.job}{_SUFFIX}")
        folder = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def remove(self, job: str) -> None:
        """The site has confirmed it."""
        if self._directory is None:
            return
        try:
            (self._directory / f"{job}{_SUFFIX}").unlink(missing_ok=True)
        except OSError as error:
            logger.warning("%s: %s", self._directory, error.strerror)

    def load(self) -> list[Intent]:
        """All that were not confirmed when the plugin last ran."""
        if self._directory is None:
            return []
        try:
            files = sorted(self._directory.glob(f"*{_SUFFIX}"))
        except OSError:
            return []
        return [intent for intent in map(_read, files) if intent is not None]


def _read(path: Path) -> Optional[Intent]:
    try:
        return read_intent(path.read_bytes(), str(path))
    except FileNotFoundError:
        return None  # another worker was quicker
    except OSError as error:
        logger.warning("%s: %s", path, error.strerror)
        return None


def read_intent(content: bytes, where: str) -> Optional[Intent]:
    """The deletion in some bytes; None, and a line in the log, when there is none."""
    try:
        raw = json.loads(content)
        job, grace = raw["job"], raw["grace_period_s"]
        uid_of(job)
        if grace is not None and (type(grace) is not int or not 0 <= grace <= LARGEST):
            raise ValueError("grace_period_s")
        return Intent(check_token("pool", raw["pool"]), job, grace)
    except (ValueError, KeyError, TypeError, PodRejected, RecursionError) as error:
        logger.warning("%s: is not a deletion: %s", where, error)
        return None
