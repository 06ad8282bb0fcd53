"""Homes of pods: the pool that each was sent to, or that it names itself.

What is asked without a pool, as logs are, is asked at the home: another pool that claims the pod
may lie. They survive a restart as lines of a file that all workers append to; the file and the one
before it are as long as what is kept in memory.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from pathlib import Path

from templates.common.errors import PodRejected
from templates.common.names import check_token, check_uid

logger = logging.getLogger(__name__)

MOST_HOMES = 200_000  # the oldest are forgotten first
LARGEST_FILE = 16 * 1024 * 1024  # then the next one is begun
FILE, OLDER_FILE = "homes", "homes.old"


class Homes:
    """Pools by the uids of their pods; called by any number of threads."""

    def __init__(self, directory: str = "") -> None:
        self._directory = Path(directory) if directory else None
        self._pools: dict[str, str] = {}
        self._read: tuple[int, int] = (-1, 0)  # inode of the file, and how far it was read
        self._has_failed = False
        self._lock = threading.Lock()
        if self._directory is not None:
            self._read_on(self._directory)

    def get(self, uid: str) -> str:
        """Return the pool of a pod, as far as this process has heard; empty if unknown."""
        return self._pools.get(uid, "")

    def find(self, uid: str) -> str:
        """Return the pool of a pod, also if only another process knows it; empty if unknown."""
        if uid not in self._pools and self._directory is not None:
            with self._lock:
                self._read_on(self._directory)
        return self.get(uid)

    def set(self, uid: str, pool: str) -> None:
        """Remember the pool of a pod."""
        with self._lock:
            if self._pools.get(uid) == pool:
                return
            self._keep(uid, sys.intern(pool))
            try:
                self._append(f"{uid} {pool}\n".encode())
            except OSError as error:
                if not self._has_failed:
                    message = "%s: pools of pods are kept in memory only: %s"
                    logger.error(message, self._directory, error.strerror)
                self._has_failed = True

    def _keep(self, uid: str, pool: str) -> None:
        self._pools.pop(uid, None)
        self._pools[uid] = pool
        if len(self._pools) > MOST_HOMES:
            del self._pools[next(iter(self._pools))]

    def _append(self, line: bytes) -> None:
        if self._directory is None:
            return
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._directory / FILE
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            os.write(handle, line)
            is_full = os.fstat(handle).st_size > LARGEST_FILE
        finally:
            os.close(handle)
        if is_full:
            self._read_on(self._directory)
            path.replace(self._directory / OLDER_FILE)

    def _read_on(self, directory: Path) -> None:
        """Take what was appended since the files were last read."""
        whole, newline, inode, begin = b"", b"", 0, 0
        with contextlib.suppress(OSError), (directory / FILE).open("rb") as file:
            found = os.fstat(file.fileno())
            inode = found.st_ino
            is_same = self._read[0] == inode and self._read[1] <= found.st_size
            begin = file.seek(self._read[1] if is_same else 0)
            whole, newline, _ = file.read().rpartition(b"\n")
        if inode != self._read[0]:
            self._take(_content(directory / OLDER_FILE))
        self._read = (inode, begin + len(whole) + len(newline))
        self._take(whole)

    def _take(self, content: bytes) -> None:
        for line in content.decode(errors="replace").splitlines():
            uid, _, pool = line.partition(" ")
            try:
                self._keep(check_uid("uid", uid), sys.intern(check_token("pool", pool)))
            except PodRejected:
                continue  # torn when the machine went down


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
