"""The objects that all steps of one pool share."""

from __future__ import annotations

from typing import NamedTuple

from submitter.backends.base import Backend
from submitter.config.settings import Pool
from submitter.jobs.table import Table
from submitter.store.journal import Journal


class PoolContext(NamedTuple):
    """One pool: its settings, files, batch system and jobs."""

    pool: Pool
    journal: Journal
    backend: Backend
    table: Table
