"""The machines that share a pool's directory: which of them is this one, and what they offer.

Each runs jobs of its own, and says in ``machines/<its name>`` what it offers, again and again. One
that has been silent for a while is left out of what the pool offers; what it runs is still its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Optional

from submitter.backends.host import accounting as room
from submitter.common.errors import BackendUnavailable
from submitter.store.journal import read
from templates.common.errors import PodRejected

SILENT_S = 120.0  # beyond three of its publications: shared file systems may be slow to tell
FORGOTTEN_S = 24 * 3600.0


class Offer(NamedTuple):
    """What another machine offers, and for how long it has not said so."""

    amounts: Mapping[str, int]
    silent_s: float


class Machines:
    """All of them, as seen by this one."""

    def __init__(self, directory: str, offer: Mapping[str, str], publications_s: float) -> None:
        self.name = os.uname().nodename
        self._folder = f"{directory}/machines"
        self._offer = dict(offer)
        self._amounts = room.amounts(offer)
        self._silent_s = SILENT_S + 3 * publications_s

    def offered(self) -> dict[str, str]:
        """What this machine offers, together with the others that can be heard."""
        try:
            self._say()
            others = [one for one in self._others() if one.silent_s < self._silent_s]
        except FileNotFoundError:  # nobody has prepared the pool's directory yet
            others = []
        except OSError as error:
            words = f"what its machines offer cannot be told: {error.strerror}"
            raise BackendUnavailable(words) from None
        if not others:
            return dict(self._offer)
        return room.texts(room.total([self._amounts, *(one.amounts for one in others)]))

    def most(self, name: str) -> int:
        """The most that one of them offers of something, those that are away for a day included."""
        others: list[Offer] = []
        with contextlib.suppress(OSError):
            others = list(self._others())
        return max(one.get(name, 0) for one in (self._amounts, *(one.amounts for one in others)))

    def _say(self) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._folder, 0o700)
        draft = f"{self._folder}/.{uuid.uuid4().hex}"
        with open(draft, "w", encoding="utf-8") as file:
            json.dump(self._offer, file)
        os.rename(draft, f"{self._folder}/{self.name}")

    def _others(self) -> Iterator[Offer]:
        """By the clock of the file system, which is the same for all of them."""
        own, now = f"{self._folder}/{self.name}", time.time()
        with contextlib.suppress(FileNotFoundError):
            now = os.stat(own).st_mtime
        for name in os.listdir(self._folder):
            path = f"{self._folder}/{name}"
            if path == own:
                continue
            with contextlib.suppress(FileNotFoundError):
                silent_s = now - os.stat(path).st_mtime
                if silent_s > FORGOTTEN_S:
                    os.unlink(path)
                elif not name.startswith("."):
                    yield Offer(_amounts(read(path)), silent_s)


def _amounts(raw: Optional[bytes]) -> dict[str, int]:
    """Of an offer as it was written; nothing where it cannot be read."""
    try:
        return room.amounts(json.loads(raw or b""))
    except (ValueError, TypeError, AttributeError, PodRejected):
        return {}
