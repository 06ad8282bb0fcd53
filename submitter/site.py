"""What the parts of one pool's service share."""

from __future__ import annotations

from typing import NamedTuple

from submitter.backends.base import Backend
from submitter.journal import Journal
from submitter.settings import Pool
from submitter.table import Table


class Site(NamedTuple):
    """One pool: its settings, files, batch system and jobs."""

    pool: Pool
    journal: Journal
    backend: Backend
    table: Table
