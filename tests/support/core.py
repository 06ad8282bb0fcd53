"""The tests of a tier's folder, and which of them CI has the time for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

Core = Mapping[str, Sequence[str]]
"""Names of tests, by module."""


def mark(
    items: Sequence[pytest.Item], folder: Path, tier: pytest.MarkDecorator, core: Core
) -> None:
    """Mark the tests below a folder with its tier; those of the core as such, too."""
    for item in items:
        if folder not in item.path.parents:
            continue
        item.add_marker(tier)
        if item.name.partition("[")[0] in core.get(item.path.name, ()):
            item.add_marker(pytest.mark.core)
