"""Telling systemd that the service is ready, alive or about to stop (sd_notify).

Datagrams to a socket need no library, and a socket that is gone must never end the service. In a
container there is no systemd: there a file says what the service is doing, which probes read, and
whose age tells whether it still does. Without either all of this does nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable
from typing import Callable

from submitter.config.settings import Supervisor, supervisor

WAITING_PAUSE_S = 2.0  # between two words about what a service waits for that is not ready yet
UNWATCHED_S = 20.0  # between two signs of life where nobody has said how many there have to be
SIGNS_PER_WATCHDOG = 3  # signs of life in the time after which systemd would end us


class Notifier:
    """The way to systemd, to a file, or to nobody."""

    def __init__(self, told_by: Supervisor) -> None:
        address = told_by.notify_socket
        self._file = told_by.status_file
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_s = told_by.watchdog_s

    @classmethod
    def from_environment(cls) -> Notifier:
        """The one that our environment names; what we start does not see it."""
        return cls(supervisor())

    def send(self, *states: str) -> None:
        """Say one or more things (READY=1, STATUS=...) at once."""
        if not self._address:
            return
        message = "\n".join(state.replace("\n", " ") for state in states)
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as way:
            way.setblocking(False)
            way.sendto(message.encode(errors="replace"), self._address)

    def status(self, words: str, *states: str) -> None:
        """What ``systemctl status`` shows, and the file, with other things to say at once."""
        self.send(*states, f"STATUS={words}")
        if self._file:
            with contextlib.suppress(OSError):
                write_status(self._file, words)


def write_status(path: str, words: str) -> None:
    """In one line; whoever reads it sees all of it."""
    draft = f"{path}.new"
    with open(draft, "w", encoding="utf-8", errors="replace") as file:
        file.write(words.replace("\n", " ") + "\n")
    os.replace(draft, path)


async def keep_told(
    notifier: Notifier, ready: Callable[[], Awaitable[object]], words: Callable[[], str]
) -> None:
    """Say that the service is ready once it is, and then for as long as its loop turns.

    Runs until it is cancelled, and says then that the service stops. ``words`` are for people:
    what the service is doing, asked for at every sign of life.
    """
    becoming = asyncio.ensure_future(ready())
    try:
        while not becoming.done():
            notifier.status(words())
            await asyncio.wait({becoming}, timeout=WAITING_PAUSE_S)
        await becoming
        notifier.status(words(), "READY=1")
        pause = notifier.watchdog_s / SIGNS_PER_WATCHDOG if notifier.watchdog_s else UNWATCHED_S
        while True:
            await asyncio.sleep(pause)
            notifier.status(words(), "WATCHDOG=1")
    finally:
        becoming.cancel()
        notifier.send("STOPPING=1")
