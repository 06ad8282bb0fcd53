"""Everything that the chart makes is taken by a real API server, with the kinds that it needs."""

from __future__ import annotations

import base64

import pytest
import yaml

from tests.chart.helm import (
    CHART,
    CONDOR,
    EVERYTHING,
    MATRIX,
    MINIMAL,
    NAMESPACE,
    RELEASE,
    SECRETS,
    Json,
    helm,
    objects,
    text_of,
)
from tests.support.kueue_api import Refused
from tests.support.kueue_bed import KueueBed


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


def installed(bed: KueueBed, values: Json) -> str:
    """What helm would send, and what it would say in the end."""
    words = ["install", RELEASE, str(CHART), "--dry-run=server", "--namespace", NAMESPACE]
    done = helm(*words, values=values, kubeconfig=bed.kubeconfig, seconds=180)
    assert done.returncode == 0, done.stderr
    return done.stdout


def notes(bed: KueueBed, values: Json) -> str:
    return installed(bed, values).partition("NOTES:")[2]


def test_the_notes_say_what_comes_next(bed: KueueBed, namespace: str) -> None:
    minimal, everything = notes(bed, MINIMAL), notes(bed, EVERYTHING)
    assert "kubectl wait --for=condition=Ready --timeout=5m node/interlink" in minimal
    assert "There is no site yet" in minimal
    assert "node/cpu node/gpu" in everything
    assert "Take this password to the site lab" in everything
    assert "helm test il --namespace batch" in everything


def test_the_notes_for_a_computing_element_name_it(bed: KueueBed, namespace: str) -> None:
    told = notes(bed, CONDOR)
    assert "See whether ce.example.org takes the submitter's tokens" in told
    assert "https://interlink.example.org/pinglink" in told
    assert "virtual node" not in told
    assert [secret for secret in SECRETS.values() if secret in told] == []
    inside = notes(bed, MATRIX["condor-without-ingress"])
    assert "port 80 of the Service il-interlink-nats-api" in inside


def test_a_secret_that_was_made_is_kept(bed: KueueBed, namespace: str) -> None:
    kept = "a" * 32
    name = {"name": "il-interlink-nats-oauth2-proxy", "namespace": namespace}
    owner = {
        "labels": {"app.kubernetes.io/managed-by": "Helm"},
        "annotations": {
            "meta.helm.sh/release-name": RELEASE,
            "meta.helm.sh/release-namespace": namespace,
        },
    }
    data = {"stringData": {"cookie-secret": kept}}
    bed.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {**name, **owner}, **data})
    sent = installed(bed, {**CONDOR, "oauth2ProxyCookieSecret": ""})
    assert f"cookie-secret: {base64.b64encode(kept.encode()).decode()}" in sent


def test_the_port_of_logs_is_open_to_the_api_server_and_nobody_else(
    bed: KueueBed, namespace: str
) -> None:
    found = [
        o
        for o in yaml.safe_load_all(
            installed(bed, MINIMAL).partition("MANIFEST:")[2].partition("NOTES:")[0]
        )
        if o
    ]
    (policy,) = (
        o
        for o in found
        if o["kind"] == "NetworkPolicy" and o["metadata"]["name"].endswith("-interlink")
    )
    (rule,) = (r for r in policy["spec"]["ingress"] if r["ports"][0]["port"] == "kubelet")
    slices = bed.kubectl(
        *("get", "endpointslices", "--namespace", "default", "--output"),
        "jsonpath={.items[*].endpoints[*].addresses[*]}",
    )
    assert [peer["ipBlock"]["cidr"] for peer in rule["from"]] == [
        f"{ip}/32" for ip in slices.split()
    ]
    assert slices.split()
