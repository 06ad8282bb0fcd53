"""Notifications to systemd that the service is ready, alive or about to stop (sd_notify).

Datagrams to a socket need no library, and a socket that is gone must never end the service. In a
container without systemd, probes read a status file, whose age shows whether the service is alive.
Without either, nothing happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable
from typing import Callable

from submitter.config.settings import Supervisor, take_supervisor

WAITING_PAUSE_S = 2.0  # between two status messages until the service is ready
DEFAULT_PAUSE_S = 20.0  # between two signs of life without a watchdog
SIGNS_PER_WATCHDOG = 3  # signs of life in the time after which systemd would end us


class Notifier:
    """The socket of systemd, the status file, or neither."""

    def __init__(self, supervisor: Supervisor) -> None:
        address = supervisor.notify_socket
        self._file = supervisor.status_file
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_s = supervisor.watchdog_s

    @classmethod
    def from_environment(cls) -> Notifier:
        """Return the one that our environment names, and hide it from the programs we start."""
        return cls(take_supervisor())

    def send(self, *states: str) -> None:
        """Send one or more assignments (READY=1, STATUS=...) at once."""
        if not self._address:
            return
        message = "\n".join(state.replace("\n", " ") for state in states)
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as way:
            way.setblocking(False)
            way.sendto(message.encode(errors="replace"), self._address)

    def status(self, message: str, *states: str) -> None:
        """Set what ``systemctl status`` and the file show; send other assignments along."""
        self.send(*states, f"STATUS={message}")
        if self._file:
            with contextlib.suppress(OSError):
                write_status(self._file, message)


def write_status(path: str, message: str) -> None:
    """Replace the status file by one line; readers never see half of it."""
    draft = f"{path}.new"
    with open(draft, "w", encoding="utf-8", errors="replace") as file:
        file.write(message.replace("\n", " ") + "\n")
    os.replace(draft, path)


async def keep_notified(
    notifier: Notifier, ready: Callable[[], Awaitable[object]], describe: Callable[[], str]
) -> None:
    """Notify systemd once the service is ready, and then for as long as its loop runs.

    Runs until it is cancelled, and then notifies that the service stops. ``describe`` returns what
    the service is doing, for people; it is called for every sign of life.
    """
    waiting = asyncio.ensure_future(ready())
    try:
        while not waiting.done():
            notifier.status(describe())
            await asyncio.wait({waiting}, timeout=WAITING_PAUSE_S)
        await waiting
        notifier.status(describe(), "READY=1")
        pause = notifier.watchdog_s / SIGNS_PER_WATCHDOG if notifier.watchdog_s else DEFAULT_PAUSE_S
        while True:
            await asyncio.sleep(pause)
            notifier.status(describe(), "WATCHDOG=1")
    finally:
        waiting.cancel()
        notifier.send("STOPPING=1")
