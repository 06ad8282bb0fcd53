"""A backend of a real site, used by tests without a submitter."""

from __future__ import annotations

from typing import Any, Callable, Optional

from submitter.backends.base import Backend, Sighting, Ticket
from submitter.store.journal import read
from templates.job.records import JobState, fold, parse_lines
from templates.job.status import ENDED
from tests.unit.submitter.rig import PATIENCE_S, eventually


class BackendBench:
    """What its jobs do, as the backend and their records say."""

    backend: Backend

    def sight(self, ticket: Ticket) -> Optional[Sighting]:
        return self.backend.poll([ticket]).get(ticket.name)

    def until(
        self, ticket: Ticket, what: Callable[[Sighting], Any], seconds: float = PATIENCE_S
    ) -> Sighting:
        def look() -> Optional[Sighting]:
            seen = self.sight(ticket)
            return seen if seen is not None and what(seen) else None

        return eventually(look, seconds, f"{ticket}: {self.sight(ticket)}")

    def ended(self, ticket: Ticket, seconds: float = PATIENCE_S) -> Sighting:
        return self.until(ticket, lambda seen: seen.phase == ENDED, seconds)

    def state(self, ticket: Ticket) -> JobState:
        return fold(parse_lines(read(f"{ticket.directory}/records") or b""))

    def runs(self, ticket: Ticket) -> bool:
        found = self.state(ticket).containers.get("main")
        return found is not None and found.state == "running"

    def until_it_runs(self, ticket: Ticket) -> None:
        eventually(lambda: self.runs(ticket), why=str(ticket))
