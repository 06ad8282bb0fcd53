"""Syncs: what was written survives a power cut."""

from __future__ import annotations

import ctypes
import os


def sync_below(directory: str) -> None:
    """Sync the file system of a directory; raise ``OSError``."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if _syncfs is None:
            os.sync()
        elif _syncfs(descriptor) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    finally:
        os.close(descriptor)


def sync_folder(path: str) -> None:
    """Sync the names in a folder; raise ``OSError``."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
