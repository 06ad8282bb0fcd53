"""Pending deletes as files: what the plugin has promised to interLink survives a restart."""

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


class DeleteRecord(NamedTuple):
    """Delete that a site has not confirmed yet."""

    pool: str
    job: str
    grace_period_s: Optional[int]  # None: the job's own


class DeleteRecordStore(Protocol):
    """Store of pending deletes besides this process's memory."""

    def add(self, record: DeleteRecord) -> None:
        """Save a record."""

    def remove(self, job: str) -> None:
        """Remove the record of a job."""

    def load(self) -> list[DeleteRecord]:
        """Return all records."""


class DeleteRecordFiles:
    """Store with one small file per pending delete."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory) if directory else None
        self._lock = threading.Lock()

    def add(self, record: DeleteRecord) -> None:
        """Save a record durably; log and continue if the directory is not writable."""
        if self._directory is None:
            return
        try:
            self._write(self._directory, record)
        except OSError as error:
            logger.error(
                "%s: its deletion is kept in memory only: %s: %s",
                record.job,
                self._directory,
                error.strerror,
                extra={"job": record.job},
            )

    def _write(self, directory: Path, record: DeleteRecord) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=directory, prefix=".")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(record._asdict(), file)
            file.flush()
            os.fsync(file.fileno())
        Path(name).rename(directory / f"{record.job}{_SUFFIX}")
        folder = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def remove(self, job: str) -> None:
        """Remove the record of a job that its site has confirmed."""
        if self._directory is None:
            return
        try:
            (self._directory / f"{job}{_SUFFIX}").unlink(missing_ok=True)
        except OSError as error:
            logger.warning("%s: %s", self._directory, error.strerror)

    def load(self) -> list[DeleteRecord]:
        """Return the deletes that were not confirmed when the plugin last ran."""
        if self._directory is None:
            return []
        try:
            files = sorted(self._directory.glob(f"*{_SUFFIX}"))
        except OSError:
            return []
        return [record for record in map(_read, files) if record is not None]


def _read(path: Path) -> Optional[DeleteRecord]:
    try:
        return parse_delete_record(path.read_bytes(), str(path))
    except FileNotFoundError:
        return None  # another worker has removed it
    except OSError as error:
        logger.warning("%s: %s", path, error.strerror)
        return None


def parse_delete_record(content: bytes, source: str) -> Optional[DeleteRecord]:
    """Return the record in some bytes; None, and a log message, if it is not valid."""
    try:
        raw = json.loads(content)
        job, grace = raw["job"], raw["grace_period_s"]
        uid_of(job)
        if grace is not None and (type(grace) is not int or not 0 <= grace <= LARGEST):
            raise ValueError("grace_period_s")
        return DeleteRecord(check_token("pool", raw["pool"]), job, grace)
    except (ValueError, KeyError, TypeError, PodRejected, RecursionError) as error:
        logger.warning("%s: is not a deletion: %s", source, error)
        return None
