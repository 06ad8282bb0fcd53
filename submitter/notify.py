"""Telling systemd that the service is ready, alive or about to stop (sd_notify).

Without systemd all of this does nothing. Datagrams to a socket need no library, and a socket that
is gone must never end the service.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable
from typing import Callable

from submitter.settings import Supervisor, supervisor

WAITING_PAUSE_S = 2.0  # between two words about what a service waits for that is not ready yet
SIGNS_PER_WATCHDOG = 3  # signs of life in the time after which systemd would end us


class Notifier:
    """The way to systemd, or to nobody."""

    def __init__(self, told_by: Supervisor) -> None:
        address = told_by.notify_socket
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

    def status(self, words: str) -> None:
        """What ``systemctl status`` shows."""
        self.send(f"STATUS={words}")


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
        notifier.send("READY=1", f"STATUS={words()}")
        pause = notifier.watchdog_s / SIGNS_PER_WATCHDOG if notifier.watchdog_s else 60
        while True:
            await asyncio.sleep(pause)
            notifier.send("WATCHDOG=1", f"STATUS={words()}")
    finally:
        becoming.cancel()
        notifier.send("STOPPING=1")
