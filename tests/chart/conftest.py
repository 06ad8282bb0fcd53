"""Every test here needs helm (``scripts/bed build helm``); those with ``bed`` need a bed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chart.helm import CHART
from tests.chart.installed import load_images
from tests.support.kueue_bed import KueueBed, part, running

BED = "chart-tests"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.chart)


@pytest.fixture(scope="session")
def bed() -> Iterator[KueueBed]:
    """A cluster with Kueue, the kinds that the chart makes objects of, one node, and Traefik."""
    with running(BED, options=["--ingress"]) as found:
        for name in ("cert-manager", "prometheus-operator"):
            found.kubectl("apply", "--server-side", "-f", str(part(name) / "kinds.yaml"))
        found.kubectl("apply", "--server-side", "-f", str(CHART / "crds"))
        found.kubectl("wait", "--for=condition=Established", "--all", "crd", "--timeout=60s")
        yield found


@pytest.fixture(scope="session")
def images(bed: KueueBed) -> None:
    """On the node of the bed."""
    load_images(bed)
