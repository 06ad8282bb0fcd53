"""The Slurm backend at a site that keeps no accounts: only the controller can be asked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from submitter.common.errors import SubmitRefused
from tests.sites.slurm.site import SlurmSite, running
from tests.sites.slurm.test_backend import WAIT, Bench


@pytest.fixture(scope="module")
def bare_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmSite]:
    with running(tmp_path_factory.mktemp("bare") / "site", nodes=1, accounting=False) as site:
        yield site


@pytest.fixture
def bench(bare_site: SlurmSite) -> Iterator[Bench]:
    yield Bench(bare_site)
    bare_site.restore()


def test_ends_are_told_by_the_controller(bench: Bench) -> None:
    failed, cancelled = bench.submit("exit 7"), bench.submit(WAIT)
    seen = bench.ended(failed)
    assert (seen.exit_code, seen.message[:13]) == (7, "Slurm: FAILED")
    bench.until_it_runs(cancelled)
    bench.site.admin("scancel", cancelled.native)
    assert bench.ended(cancelled).reason == "Cancelled"


def test_a_job_is_found_by_its_name(bench: Bench) -> None:
    ref = bench.submit(WAIT)
    assert bench.slurm.find([ref.name]) == {ref.name: ref.native}
    bench.slurm.cancel([ref], kill=True)
    bench.ended(ref)
    assert bench.slurm.find([ref.name]) == {ref.name: ref.native}


def test_what_is_offered_and_refused(bench: Bench) -> None:
    offer = bench.slurm.capacity()
    assert int(offer["cpu"]) > 0
    assert int(offer["pods"]) >= 1000  # as many as the controller holds
    with pytest.raises(SubmitRefused, match="Invalid partition name"):
        bench.submit(flags="--partition=none")
