"""Everything that the chart makes is taken by a real API server, with the kinds that it needs."""

from __future__ import annotations

import pytest
import yaml

from tests.chart.helm import (
    CHART,
    EVERYTHING,
    MATRIX,
    MINIMAL,
    NAMESPACE,
    RELEASE,
    Json,
    helm,
    objects,
    text_of,
)
from tests.kueue_api import Refused
from tests.kueue_bed import KueueBed


@pytest.fixture(scope="module")
def namespace(bed: KueueBed) -> str:
    bed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    return NAMESPACE


def dry_run(bed: KueueBed, text: str) -> str:
    """In the namespace default, but for objects that name theirs."""
    options = ["--server-side", "--dry-run=server", "--validate=strict"]
    return bed.kubectl("apply", *options, "-f", "-", input=text, seconds=180)


@pytest.mark.parametrize("name", MATRIX)
def test_the_api_server_takes_every_object(bed: KueueBed, name: str) -> None:
    told = dry_run(bed, text_of(MATRIX[name]))
    assert len(told.splitlines()) == len(objects(name))


def test_it_would_have_noticed_a_mistake(bed: KueueBed) -> None:
    (service, *_) = (o for o in objects("minimal") if o["kind"] == "Service")
    text = yaml.safe_dump({**service, "spec": {**service["spec"], "selektor": {}}})
    with pytest.raises(Refused, match="selektor"):
        dry_run(bed, text)


def test_the_notes_say_what_comes_next(bed: KueueBed, namespace: str) -> None:
    def notes(values: Json) -> str:
        words = ["install", RELEASE, str(CHART), "--dry-run=server", "--namespace", namespace]
        done = helm(*words, values=values, kubeconfig=bed.kubeconfig, seconds=180)
        assert done.returncode == 0, done.stderr
        return done.stdout.partition("NOTES:")[2]

    minimal, everything = notes(MINIMAL), notes(EVERYTHING)
    assert "kubectl wait --for=condition=Ready --timeout=5m node/interlink" in minimal
    assert "There is no site yet" in minimal
    assert "node/cpu node/gpu" in everything
    assert "Take this password to the site lab" in everything
    assert "helm test il --namespace batch" in everything
