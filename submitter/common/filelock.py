"""Locks between processes that share a directory: held by an open file, released with it."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from submitter.common.guarded_files import open_file


@contextmanager
def locked(path: str, wait: bool) -> Iterator[bool]:
    """Hold the lock of a file, created if missing; yield False if it is held elsewhere."""
    descriptor = open_file(path, os.O_RDWR | os.O_CREAT)
    try:
        yield acquire(descriptor, wait)
    finally:
        os.close(descriptor)


def acquire(descriptor: int, wait: bool) -> bool:
    """Lock an open file; return False if it is locked elsewhere and ``wait`` is not set."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True
