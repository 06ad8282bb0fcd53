"""The base of backends that run a batch system's own programs, as the submitter's user."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from submitter.backends.base import Backend, Observation
from submitter.backends.commands import CommandRunner, chunks
from submitter.common.errors import BackendUnavailable
from submitter.common.nats_request import AskNats, not_connected
from submitter.config.settings import Pool
from submitter.store.journal import read

AFTER_TROUBLE_S = 5.0  # what it took in before it fell silent is in its queue by then
REMEMBERED_S = 14 * 24 * 3600  # how far back its history is searched for a name
CAPACITY_S = 30.0  # how long what is offered is taken for what it was


class CommandBackend(Backend):
    """A batch system behind command-line programs, with a queue that outlives the submitter."""

    settle_s = 15.0
    visible_after_s = 15.0
    starts_again = True

    title: str
    """The batch system's name, for people."""

    def __init__(self, pool: Pool, ask: AskNats = not_connected) -> None:
        super().__init__(pool, ask)
        self._last: dict[str, Observation] = {}
        self._offer: dict[str, str] = {}
        self._offered = 0.0

    # --- for subclasses -----------------------------------------------------------------------

    @property
    @abstractmethod
    def _programs(self) -> CommandRunner:
        """The programs that are run."""

    @abstractmethod
    def _is_native(self, text: str) -> bool:
        """Return whether this can be the identity of a job."""

    @abstractmethod
    def _find_submitted(self, names: Sequence[str]) -> Mapping[str, str]:
        """Return the identities of those of a chunk of jobs that were taken."""

    @abstractmethod
    def _measure_capacity(self) -> dict[str, str]:
        """Return what is offered now."""

    def _last_observation(self, name: str) -> Observation:
        """Return what was said of a job before, where nothing can be said now."""
        return self._last.get(name, Observation())

    # --- what they share ------------------------------------------------------------------------

    def find(self, names: Sequence[str]) -> dict[str, str]:
        found = self._begun(names)
        for chunk in chunks(name for name in names if name not in found):
            found.update(self._find_submitted(chunk))
        if len(found) < len(names) and self._programs.answers_for_s() < AFTER_TROUBLE_S:
            raise BackendUnavailable(f"{self.title} answers again, and may still be taking jobs in")
        return found

    def _begun(self, names: Iterable[str]) -> dict[str, str]:
        """Return those whose script has begun: it says under which number."""
        found = {}
        for name in names:
            words = (read(f"{self.pool.directory}/jobs/{name}/started") or b"").split()
            native = words[1].decode(errors="replace") if len(words) >= 2 else ""
            if self._is_native(native):
                found[name] = native
        return found

    def capacity(self) -> dict[str, str]:
        now = time.monotonic()
        if not self._offer or now - self._offered > CAPACITY_S:
            self._offer = self._measure_capacity()
            self._offered = now
        return dict(self._offer)
