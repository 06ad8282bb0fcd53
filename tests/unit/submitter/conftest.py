"""What tests of the submitter share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest

from tests.support.nats_server import NatsServer
from tests.support.processes import kill_left
from tests.unit.submitter.rig import Centre, Submitter, kill

Start = Callable[..., Submitter]


@pytest.fixture
def centre(nats: NatsServer) -> Iterator[Centre]:
    one = Centre(nats)
    yield one
    one.close()


@pytest.fixture
def start(nats: NatsServer, centre: Centre, tmp_path: Path) -> Iterator[Start]:
    """Starts submitters of one pool; ends them, and whatever their jobs have left."""
    started: list[Submitter] = []

    def start_one(**pool: Any) -> Submitter:
        one = Submitter(nats, tmp_path, **pool)
        started.append(one)
        return one.until_ready(centre)

    yield start_one
    kill(started)
    kill_left(tmp_path, whole_path=True)
