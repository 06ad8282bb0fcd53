"""Every test here needs a cluster that is a pool: a bed of scripts/bed with a node."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes_pool import Cluster, make_image
from tests.kueue_bed import running
from tests.submitter.conftest import *  # noqa: F403 - its fixtures are used here


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.kubernetes)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(f"kubernetes-{os.getpid()}") as bed:
        bed.load(make_image(tmp_path_factory.mktemp("image")))
        yield Cluster(bed)
