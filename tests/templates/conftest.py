"""How thoroughly hostile messages are tried: quickly at every run, at length in tier "slow"."""

from __future__ import annotations

import pytest


@pytest.fixture(params=[1_000, pytest.param(100_000, marks=pytest.mark.slow)])
def mutations(request: pytest.FixtureRequest) -> int:
    count: int = request.param
    return count
