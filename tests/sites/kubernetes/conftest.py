"""Every test here needs a cluster that is a pool: a bed of scripts/bed with a node."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sites.kubernetes.pool import Cluster, make_image
from tests.support import core
from tests.support.kueue_bed import running
from tests.support.nats_server import NatsServer
from tests.unit.submitter.conftest import *  # noqa: F403 - its fixtures are used here
from tests.unit.submitter.rig import Centre, Submitter

# What "scripts/test kubernetes-core" runs.
CORE = {
    "test_conformance.py": (
        "test_states_on_the_way",
        "test_a_repeated_create_runs_once",
        "test_a_deleted_job_gets_a_term_first",
        "test_killed_at_random_moments_nothing_is_lost_or_run_twice",
    ),
    "test_pods.py": (
        "test_values_arrive_as_they_are_and_nothing_secret_is_in_the_pod",
        "test_volumes_and_the_first_clusters_token_come_as_files_and_no_other_token_does",
        "test_a_log_is_read_while_it_grows_and_when_its_pod_is_gone",
        "test_after_a_gap_everything_is_known_again",
    ),
    "test_queue.py": ("test_pods_run_in_the_order_in_which_they_came",),
    "test_docs.py": ("test_a_token_that_has_run_out_is_read_again_as_the_page_says",),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    core.mark(items, Path(__file__).parent, pytest.mark.kubernetes, CORE)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(f"kubernetes-{os.getpid()}") as bed:
        bed.load(make_image(tmp_path_factory.mktemp("image")))
        yield Cluster(bed)


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """One as the docs have it; modules that want another have their own."""
    name = cluster.namespace()
    yield name
    cluster.bed.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def submitter(
    nats: NatsServer, centre: Centre, cluster: Cluster, namespace: str, tmp_path: Path
) -> Iterator[Submitter]:
    """The one of a pool in the test's namespace."""
    one = Submitter(nats, tmp_path, **cluster.pool(namespace)).until_ready(centre)
    yield one
    one.stop(signal.SIGKILL)
