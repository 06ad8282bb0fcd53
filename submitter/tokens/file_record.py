"""A few bytes that several submitters share, changed by one at a time.

Who changes them says which ones it has seen: if others are there by now, nothing is changed.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from typing import Optional, Protocol

from submitter.common.filelock import locked
from templates.job.directory import write_file


class SharedRecord(Protocol):
    """Both methods raise ``OSError`` when the record cannot be reached."""

    def read(self) -> tuple[bytes, str]:
        """What it holds, empty at first, and the name of this version of it."""

    def swap(self, version: str, content: bytes) -> Optional[str]:
        """Replace that version of it; the new version's name, or None if it was not the last."""


class FileRecord:
    """In a file that nobody else can read, on a file system that the submitters share."""

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self) -> tuple[bytes, str]:
        try:
            with open(self._path, "rb") as file:
                content = file.read()
        except FileNotFoundError:
            content = b""
        return content, _version(content)

    def swap(self, version: str, content: bytes) -> Optional[str]:
        with locked(f"{self._path}.lock", wait=True):
            if self.read()[1] != version:
                return None
            replace_file(self._path, content)
            return _version(content)


def _version(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def replace_file(path: str, content: bytes) -> None:
    """Write a file for its owner alone; readers see the old one or the new one, each whole."""
    temporary = f"{path}.{uuid.uuid4().hex}"
    try:
        write_file(temporary, content)
        os.rename(temporary, path)
    except OSError:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
