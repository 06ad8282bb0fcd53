"""A few bytes that several submitters share, changed by one at a time.

A change names the version that it replaces: if there is another one by now, nothing is changed.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from typing import Optional, Protocol

from submitter.common.filelock import locked
from templates.job.directory import write_file


class SharedRecord(Protocol):
    """A record; both methods raise ``OSError`` if it cannot be reached."""

    def read(self) -> tuple[bytes, str]:
        """Return the content, empty at first, and the name of its version."""

    def swap(self, version: str, content: bytes) -> Optional[str]:
        """Replace this version; return the name of the new one, None if it was not the last."""


class FileRecord:
    """A record in a file that only our user can read, on a file system that submitters share."""

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
    """Write a file for its owner alone, atomically."""
    temporary = f"{path}.{uuid.uuid4().hex}"
    try:
        write_file(temporary, content)
        os.rename(temporary, path)
    except OSError:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
