"""The machines that share a pool's directory, and the resources that each of them offers.

Each runs jobs of its own, and updates its offer in ``machines/<its name>`` periodically. A machine
whose offer is too old is not part of the pool's capacity; it still owns the jobs that it runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Optional

from submitter.backends.host import accounting
from submitter.common.errors import BackendUnavailable
from submitter.common.guarded_files import OddEntry, load_object, read
from templates.common.errors import PodRejected

TIMEOUT_S = 120.0  # beyond three of its publications: shared file systems may be slow
DELETE_AFTER_S = 24 * 3600.0


class Offer(NamedTuple):
    """The offer of another machine, and its age."""

    amounts: Mapping[str, int]
    age_s: float


class Machines:
    """All machines of a pool, as this one sees them."""

    def __init__(self, directory: str, offer: Mapping[str, str], publications_s: float) -> None:
        self.name = os.uname().nodename
        self._folder = f"{directory}/machines"
        self._offer = dict(offer)
        self._amounts = accounting.parse_amounts(offer)
        self._timeout_s = TIMEOUT_S + 3 * publications_s

    def read_offer(self) -> dict[str, str]:
        """Return the offers of this machine and of the others that have renewed theirs."""
        try:
            self._write_offer()
            others = [one for one in self._read_others() if one.age_s < self._timeout_s]
        except FileNotFoundError:  # the pool's directory does not exist yet
            others = []
        except OSError as error:
            message = f"what its machines offer cannot be told: {error.strerror}"
            raise BackendUnavailable(message) from None
        if not others:
            return dict(self._offer)
        return accounting.format_amounts(
            accounting.sum_amounts([self._amounts, *(one.amounts for one in others)])
        )

    def max_offered(self, name: str) -> int:
        """Return the largest offer of a resource by one machine, even if it is away for a day."""
        others: list[Offer] = []
        with contextlib.suppress(OSError):
            others = list(self._read_others())
        return max(one.get(name, 0) for one in (self._amounts, *(one.amounts for one in others)))

    def _write_offer(self) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._folder, 0o700)
        draft = f"{self._folder}/.{uuid.uuid4().hex}"
        with open(draft, "w", encoding="utf-8") as file:
            json.dump(self._offer, file)
        os.rename(draft, f"{self._folder}/{self.name}")

    def _read_others(self) -> Iterator[Offer]:
        """Yield the offers of the others, whose ages follow the clock of the file system."""
        own, now = f"{self._folder}/{self.name}", time.time()
        with contextlib.suppress(FileNotFoundError):
            now = os.stat(own).st_mtime
        for name in os.listdir(self._folder):
            path = f"{self._folder}/{name}"
            if path == own:
                continue
            with contextlib.suppress(FileNotFoundError, OddEntry):
                age_s = now - os.lstat(path).st_mtime
                if age_s > DELETE_AFTER_S:
                    os.unlink(path)
                elif not name.startswith("."):
                    yield Offer(_read_amounts(read(path)), age_s)


def _read_amounts(raw: Optional[bytes]) -> dict[str, int]:
    """Parse the offer in a file; return nothing if it cannot be read."""
    try:
        return accounting.parse_amounts(load_object(raw or b""))
    except (ValueError, TypeError, AttributeError, PodRejected):
        return {}
