"""Every test here needs an HTCondor site; each worker of pytest-xdist has one of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.condor_site import RunningSite, running
from tests.htcondor.element import Element, element


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.htcondor)


@pytest.fixture(scope="session")
def the_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSite]:
    """One whose machines share the home directories."""
    with running(tmp_path_factory.mktemp("condor") / "site") as one:
        yield one


@pytest.fixture(scope="session")
def the_apart_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSite]:
    """One whose machines see nothing of the access point's files."""
    with running(tmp_path_factory.mktemp("apart") / "site", kind=["--not-shared"]) as one:
        yield one


@pytest.fixture(scope="session")
def the_element(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Element]:
    """One that is used from another machine, with tokens."""
    with element(tmp_path_factory.mktemp("element")) as one:
        yield one


@pytest.fixture
def site(the_site: RunningSite) -> Iterator[RunningSite]:
    """The site, as it was before whatever a test does to it."""
    yield the_site
    the_site.restore()
