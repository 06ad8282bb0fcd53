"""Files in folders where others can leave what they like, as in a pool's directory.

Jobs run as the submitter's user. A directory, a pipe, a link, a file without end or another user's,
where one of ours is looked for, is the problem of one job: nothing here waits for it, follows it,
or reads more of it than it may hold.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, Optional

from templates.common.json_codec import load_json

SMALL = 64 * 1024  # of a record, a tombstone, an id
LARGE = 16 * 1024 * 1024  # of what a job was asked for, of its end, of the list of its records

# What only an entry itself can cause: other errors are the file system's.
_ODD = frozenset(
    getattr(errno, name)
    for name in "EACCES EEXIST EINVAL EISDIR ELOOP ENODEV ENOTEMPTY ENXIO EPERM ESPIPE".split()
)
_SAFE = os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC


class OddEntry(OSError):
    """An entry that none of our programs has made so."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(errno.EINVAL, reason, path)


def is_odd(error: OSError) -> bool:
    """Return whether an error concerns one entry, and says nothing about the file system."""
    return error.errno in _ODD


def open_file(path: str, flags: int = os.O_RDONLY, owners: Collection[int] = ()) -> int:
    """Open a regular file, of one of these users if any are given.

    Raise ``OddEntry`` for what is none, ``OSError`` for what is not there or cannot be had.
    """
    try:
        descriptor = os.open(path, flags | _SAFE, 0o600)
    except OSError as error:
        if is_odd(error):
            raise OddEntry(path, error.strerror or "cannot be opened") from None
        raise
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and (not owners or found.st_uid in owners):
        return descriptor
    os.close(descriptor)
    raise OddEntry(path, f"is no regular file, or user {found.st_uid}'s")


@contextmanager
def opened(path: str, owners: Collection[int] = ()) -> Iterator[int]:
    """Open a file for reading, as ``open_file`` does."""
    descriptor = open_file(path, os.O_RDONLY, owners)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read(path: str, most: int = SMALL, owners: Collection[int] = ()) -> Optional[bytes]:
    """Return the content of a file; None if it does not exist.

    Raise ``OddEntry`` for what is no file, or a larger one.
    """
    try:
        with opened(path, owners) as descriptor:
            if os.fstat(descriptor).st_size <= most:
                content = read_at(descriptor, 0, most + 1)
                if len(content) <= most:
                    return content
            raise OddEntry(path, f"is larger than {most} bytes")
    except (FileNotFoundError, NotADirectoryError):
        return None


def read_end(path: str, most: int) -> bytes:
    """Return the last bytes of a file, however large; none if it does not exist.

    Raise ``OddEntry`` for what is no file.
    """
    try:
        with opened(path) as descriptor:
            return read_at(descriptor, max(os.fstat(descriptor).st_size - most, 0), most)
    except (FileNotFoundError, NotADirectoryError):
        return b""


def read_at(descriptor: int, start: int, most: int) -> bytes:
    """Return so many bytes, or all that there are."""
    parts = []
    while most > 0 and (part := os.pread(descriptor, min(most, 1 << 20), start)):
        parts.append(part)
        start, most = start + len(part), most - len(part)
    return b"".join(parts)


def read_id(path: str) -> Optional[str]:
    """Return a job's id in the batch system; None if it has none yet."""
    content = read(path)
    if content is None:
        return None
    text = content.decode("ascii", errors="replace").strip()
    if text.startswith("-") or not text.isascii() or not text.isprintable():
        raise OddEntry(path, "holds no id")
    return text


def remove(path: str) -> None:
    """Remove what stands there, as far as possible; follow no link."""
    try:
        if stat.S_ISDIR(os.lstat(path).st_mode):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)  # rmtree would open a pipe, and wait
    except OSError:
        return


def load_object(raw: bytes) -> dict[str, Any]:
    """Return the object in JSON; raise ``ValueError`` whatever is wrong with it."""
    try:
        found = load_json(raw)
    except RecursionError:
        raise ValueError("is nested too deep") from None
    if not isinstance(found, dict):
        raise ValueError("is no object")
    return found
