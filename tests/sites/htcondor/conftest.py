"""Every test here needs an HTCondor site; each worker of pytest-xdist has one of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sites.htcondor.element import Element, element
from tests.sites.htcondor.site import RunningSite, running
from tests.support import core

# A few minutes of the whole, by module: what CI has the time for (scripts/test htcondor-core).
CORE = {
    "test_conformance.py": (
        "test_exit_codes",
        "test_states_on_the_way",
        "test_a_repeated_create_runs_once",
        "test_a_deleted_job_gets_a_term_first",
        "test_a_job_that_ends_while_nobody_looks",
        "test_killed_at_random_moments_nothing_is_lost_or_run_twice",
    ),
    "test_conformance_remote.py": ("test_nothing_of_a_job_stays_there",),
    "test_backend.py": ("test_a_job_runs_and_ends", "test_an_evicted_job_is_over"),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    core.mark(items, Path(__file__).parent, pytest.mark.htcondor, CORE)


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
