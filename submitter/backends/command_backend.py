"""The base of backends that run a batch system's own programs, as the submitter's user."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from submitter.backends.base import Backend, Observation
from submitter.backends.commands import CommandRunner, chunks
from submitter.common.errors import BackendUnavailable
from submitter.common.guarded_files import OddEntry, read
from submitter.common.nats_request import AskNats, not_connected
from submitter.config.settings import Pool

RECOVERY_S = 5.0  # what it accepted before it stopped responding is in its queue by then
HISTORY_S = 14 * 24 * 3600  # how far back its history is searched for a name
CAPACITY_CACHE_S = 30.0


class CommandBackend(Backend):
    """A batch system behind command-line programs, with a queue that outlives the submitter."""

    settle_s = 15.0
    visible_after_s = 15.0
    starts_again = True

    title: str
    """The batch system's name, for people."""

    def __init__(self, pool: Pool, ask: AskNats = not_connected) -> None:
        super().__init__(pool, ask)
        self._last_observations: dict[str, Observation] = {}
        self._capacity: dict[str, str] = {}
        self._capacity_read_at = 0.0

    # --- for subclasses -----------------------------------------------------------------------

    @property
    @abstractmethod
    def _runner(self) -> CommandRunner:
        """Return the runner of the batch system's programs."""

    @abstractmethod
    def _is_native(self, text: str) -> bool:
        """Return whether the text can be the identity of a job."""

    @abstractmethod
    def _find_submitted(self, names: Sequence[str]) -> Mapping[str, str]:
        """Return the identities of the accepted jobs of one chunk."""

    @abstractmethod
    def _measure_capacity(self) -> dict[str, str]:
        """Return the capacity as it is now."""

    def _last_observation(self, name: str) -> Observation:
        """Return the observation of a job in the previous poll."""
        return self._last_observations.get(name, Observation())

    # --- what they share ------------------------------------------------------------------------

    def find(self, names: Sequence[str]) -> dict[str, str]:
        found = self._find_started(names)
        for chunk in chunks(name for name in names if name not in found):
            found.update(self._find_submitted(chunk))
        if len(found) < len(names) and self._runner.responding_for_s() < RECOVERY_S:
            raise BackendUnavailable(f"{self.title} answers again, and may still be taking jobs in")
        return found

    def _find_started(self, names: Iterable[str]) -> dict[str, str]:
        """Return the identities of jobs whose script has begun: it writes its own down."""
        found = {}
        for name in names:
            try:
                words = (read(f"{self.pool.directory}/jobs/{name}/started") or b"").split()
            except OddEntry:
                continue
            native = words[1].decode(errors="replace") if len(words) >= 2 else ""
            if self._is_native(native):
                found[name] = native
        return found

    def capacity(self) -> dict[str, str]:
        now = time.monotonic()
        if not self._capacity or now - self._capacity_read_at > CAPACITY_CACHE_S:
            self._capacity = self._measure_capacity()
            self._capacity_read_at = now
        return dict(self._capacity)
