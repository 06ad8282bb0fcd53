"""A batch system that does what no real one does on demand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Optional

from submitter.backends.base import Backend, JobRef, Observation
from submitter.config.settings import Pool
from submitter.jobs.context import PoolContext
from submitter.jobs.table import Table
from submitter.store.journal import Journal
from templates.job.model import Job


class Moody(Backend):
    """Takes jobs, and then says what the test wants."""

    settle_s = 0.0
    visible_after_s = 0.0

    def __init__(self, folder: Path) -> None:
        super().__init__(Pool(name="site", directory=str(folder)))
        self.taken: list[str] = []
        self.visible = True
        self.after_submit: Optional[Exception] = None  # raised when the job has been taken
        self.before_submit: Optional[Exception] = None  # raised instead of taking it
        self.trouble: Optional[Exception] = None  # with every question
        self.observations: dict[str, Observation] = {}
        self.cancelled: list[tuple[str, bool]] = []

    def submit(self, job: Job, directory: str) -> str:
        if self.before_submit is not None:
            raise self.before_submit
        self.taken.append(job.name)
        if self.after_submit is not None:
            raise self.after_submit
        return f"native-{len(self.taken)}"

    def find(self, names: Sequence[str]) -> dict[str, str]:
        self._ask()
        return {name: "found" for name in names if name in self.taken and self.visible}

    def poll(self, refs: Sequence[JobRef]) -> Mapping[str, Observation]:
        self._ask()
        return self.observations

    def cancel(self, refs: Sequence[JobRef], kill: bool) -> None:
        self._ask()
        self.cancelled += [(ref.name, kill) for ref in refs]

    def clean(self, refs: Sequence[JobRef]) -> set[str]:
        self._ask()
        return super().clean(refs)

    def capacity(self) -> dict[str, str]:
        self._ask()
        return {"cpu": "1"}

    def _ask(self) -> None:
        if self.trouble is not None:
            raise self.trouble


def site_of(folder: Path) -> PoolContext:
    """A pool behind it, with the folders made."""
    journal = Journal(str(folder))
    journal.prepare()
    backend = Moody(folder)
    return PoolContext(backend.pool, journal, backend, Table())


def moody(site: PoolContext) -> Moody:
    """Its batch system."""
    assert isinstance(site.backend, Moody)
    return site.backend
