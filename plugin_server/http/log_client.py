"""The client of a log request, as far as its socket tells: it may stop reading, or go away."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Mapping
from typing import Callable

SEND_BUFFER = 128 * 1024  # of the kernel, per client; it takes twice as much
STUCK_S = 60.0  # without room for another piece
LOOK_S = 1.0  # between two looks at whether the plugin stops


class LogClient:
    """Client that a log is written to, by the thread of its request."""

    def __init__(self, environ: Mapping[str, object], is_stopping: Callable[[], bool]) -> None:
        client = environ.get("gunicorn.socket")
        self._socket = client if isinstance(client, socket.socket) else None
        self._is_stopping = is_stopping
        if self._socket is not None:
            with contextlib.suppress(OSError):  # it is gone already
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)

    def is_connected(self) -> bool:
        """Return whether the client still reads, and may go on with it here.

        A quiet log is not written, so that a closed connection would go unnoticed. When the plugin
        stops, followed logs end; clients follow them again elsewhere.
        """
        if self._is_stopping():
            return False
        if self._socket is None:
            return True
        try:
            is_quiet = not _is_ready(self._socket, select.POLLIN, 0)
            return is_quiet or self._socket.recv(1, socket.MSG_PEEK) != b""
        except OSError:
            return False

    def takes_more(self) -> bool:
        """Wait until a piece can be written without waiting; return False if it never can.

        A write to a client that has stopped reading would not return.
        """
        end = time.monotonic() + STUCK_S
        while self._socket is not None and not _is_ready(self._socket, select.POLLOUT, LOOK_S):
            if time.monotonic() > end or self._is_stopping():
                return False
        return True


def _is_ready(client: socket.socket, event: int, seconds: float) -> bool:
    """Wait until there is something to read, or room to write, or nobody there any more."""
    ready = select.poll()
    ready.register(client, event)
    return bool(ready.poll(seconds * 1000))
