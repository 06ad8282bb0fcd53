"""What tests of templates share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.nats_server import NatsServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    """A NATS server of the test's own."""
    made = NatsServer(tmp_path / "server").start()
    yield made
    made.stop()


@pytest.fixture(params=[1_000, pytest.param(100_000, marks=pytest.mark.slow)])
def mutations(request: pytest.FixtureRequest) -> int:
    """How thoroughly hostile messages are tried: quickly at every run, at length in tier "slow"."""
    count: int = request.param
    return count
