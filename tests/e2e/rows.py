"""All rows of docs/pods.md that a pod can show which ends by itself."""

from __future__ import annotations

from tests.e2e import rows_of_commands, rows_of_life, rows_of_refusals, rows_of_volumes
from tests.e2e.row import ROWS

__all__ = ["ROWS", "rows_of_commands", "rows_of_life", "rows_of_refusals", "rows_of_volumes"]
