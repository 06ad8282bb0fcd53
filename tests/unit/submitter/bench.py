"""A backend of a real site, used by tests without a submitter."""

from __future__ import annotations

from typing import Any, Callable, Optional

from submitter.backends.base import Backend, JobRef, Observation
from submitter.store.journal import read
from templates.job.records import JobState, fold, parse_lines
from templates.job.status import ENDED
from tests.unit.submitter.rig import PATIENCE_S, eventually


class BackendBench:
    """What its jobs do, as the backend and their records say."""

    backend: Backend

    def sight(self, ref: JobRef) -> Optional[Observation]:
        return self.backend.poll([ref]).get(ref.name)

    def until(
        self, ref: JobRef, what: Callable[[Observation], Any], seconds: float = PATIENCE_S
    ) -> Observation:
        def look() -> Optional[Observation]:
            seen = self.sight(ref)
            return seen if seen is not None and what(seen) else None

        return eventually(look, seconds, f"{ref}: {self.sight(ref)}")

    def ended(self, ref: JobRef, seconds: float = PATIENCE_S) -> Observation:
        return self.until(ref, lambda seen: seen.phase == ENDED, seconds)

    def state(self, ref: JobRef) -> JobState:
        return fold(parse_lines(read(f"{ref.directory}/records") or b""))

    def runs(self, ref: JobRef) -> bool:
        found = self.state(ref).containers.get("main")
        return found is not None and found.state == "running"

    def until_it_runs(self, ref: JobRef) -> None:
        eventually(lambda: self.runs(ref), why=str(ref))
