"""Every test here needs a Slurm site; each worker of pytest-xdist has one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sites.slurm.site import SlurmSite, running


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.slurm)


@pytest.fixture(scope="session")
def the_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmSite]:
    with running(tmp_path_factory.mktemp("slurm")) as site:
        yield site


@pytest.fixture
def site(the_site: SlurmSite) -> Iterator[SlurmSite]:
    """The site, as it was before whatever a test does to it."""
    yield the_site
    the_site.restore()
