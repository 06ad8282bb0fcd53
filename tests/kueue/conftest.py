"""Every test here needs a bed of scripts/bed: one for all of them that want the same Kueue.

``bed`` has the newest Kueue. A test marked ``both_kueues`` also runs with the oldest one that we
work with, when it has been built (``scripts/bed build kueue-0.14``; ``scripts/test all`` does it).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kueue_bed import NEW, OLD, KueueBed, has, running


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.kueue)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "bed" not in metafunc.fixturenames:
        return
    both = any(metafunc.definition.iter_markers("both_kueues")) and has(f"kueue-{OLD}")
    metafunc.parametrize("bed", [NEW, OLD] if both else [NEW], indirect=True, scope="session")


@pytest.fixture(scope="session")
def bed(request: pytest.FixtureRequest) -> Iterator[KueueBed]:
    """A bed for the whole session; what a test creates in it is in a namespace of its own."""
    with running(f"tests-{os.getpid()}", request.param) as found:
        yield found
