"""Values that are wrong are refused, in words that name the value."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.helm import CONDOR, MINIMAL, SECRETS, SITE_KEY, Json, refusal


def changed(path: str, value: Any, base: Json = MINIMAL) -> Json:
    """The smallest values, with one more."""
    *sections, last = path.split(".")
    root: Json = dict(base)
    inner = root
    for section in sections:
        inner[section] = dict(inner.get(section, {}))
        inner = inner[section]
    inner[last] = value
    return root


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("natz", {}, ["natz"]),
        ("nats.sitez", [], ["nats", "sitez"]),
        ("virtualNode.plugin.setings", {}, ["virtualNode", "setings"]),
        ("virtualNodes", [], ["virtualNodes"]),
        ("virtualNodes", [{"nam": "a"}], ["virtualNodes", "nam"]),
        ("virtualNodes", [{"name": "Not A Node"}], ["virtualNodes", "name", "pattern"]),
        ("virtualNodes", [{"name": "a", "pod": {"root": True}}], ["pod", "root"]),
        ("virtualNode.capacity.cpu", 100, ["cpu", "string"]),
        ("virtualNode.capacity.memory", "100 GB", ["memory", "pattern"]),
        ("virtualNode.plugin.image.digest", "abc", ["digest", "pattern"]),
        ("nats.sites", [{"name": "a", "pools": []}], ["sites", "pools"]),
        ("nats.sites", [{"name": "a.b", "pools": ["p"]}], ["sites", "name", "pattern"]),
        ("nats.sites", [{"name": "a", "pools": ["p"], "nkey": "SUAB"}], ["nkey", "pattern"]),
        ("nats.service.type", "Loadbalancer", ["service", "type"]),
        ("externalNats.servers", ["https://x"], ["externalNats", "servers", "pattern"]),
        ("externalNats.servers", ["wss://me:secret@x"], ["externalNats", "servers", "pattern"]),
        ("externalRedis.url", "redis://:secret@x", ["externalRedis", "url", "pattern"]),
        ("kueueNats.replicas", 0, ["kueueNats", "replicas"]),
        ("logging.level", "loud", ["logging", "level"]),
        ("pod.tolerations", {}, ["pod", "tolerations"]),
        ("networkPolicies.apiServerCidrs", ["10.0.0.1"], ["apiServerCidrs", "pattern"]),
        # What no schema can see.
        ("images.registry", "", ["images.registry: say where your images"]),
        ("hostname", "", ["hostname: say by which name sites will reach"]),
        ("ingress.tls", {}, ["ingress.tls: give the secretName"]),
        ("nats.websocket.tlsSecret", "x", ["TLS ends either at the Ingress or at the NATS server"]),
        ("nats.enabled", False, ["externalNats.servers: say where the NATS server is"]),
        (
            "nats.sites",
            [{"name": "a", "pools": ["p"]}, {"name": "b", "pools": ["p"]}],
            ["the pool p belongs to a and to b"],
        ),
        ("nats.sites", [{"name": "plugin", "pools": ["p"]}], ["there are two users called plugin"]),
        ("nats.sites", [{"name": "cluster", "pools": ["p"]}], ["account of the cluster itself"]),
        (
            "nats.sites",
            [{"name": "a", "pools": ["p"], "nkey": SITE_KEY}, {"name": "a", "pools": ["q"]}],
            ["there are two users called a"],
        ),
        (
            "virtualNodes",
            [{"name": "a"}, {"name": "a"}],
            ["virtualNodes: there are two called a"],
        ),
    ],
)
def test_a_mistake_is_told(path: str, value: Any, words: list[str]) -> None:
    said = refusal(changed(path, value))
    assert [word for word in words if word not in said] == [], said


def test_a_server_of_others_needs_to_know_who_we_are() -> None:
    values = {**MINIMAL, "nats": {"enabled": False}, "externalNats": {"servers": ["wss://x"]}}
    assert "externalNats.plugin.secretName: say which Secret" in refusal(values) or (
        "externalNats.kueue.secretName: say which Secret" in refusal(values)
    )


ONLY = "is of use with condor.enabled only"


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("oauth2ProxyIamIssuer", "http://iam.example.org", ["oauth2ProxyIamIssuer", "pattern"]),
        ("backendIamIssuer", "https://me:secret@iam", ["backendIamIssuer", "pattern"]),
        ("backendIamScopes", [], ["backendIamScopes"]),
        ("iamClientSecretFrom", {"secretName": "x"}, ["iamClientSecretFrom", "secretName"]),
        ("pluginCondorPool", "https://ce:9618", ["pluginCondorPool", "pattern"]),
        ("pluginCondorScheduler", "-ce", ["pluginCondorScheduler", "pattern"]),
        ("certManagerEmailAddress", "ops", ["certManagerEmailAddress", "pattern"]),
        ("certManagerAcmeServer", "", ["certManagerAcmeServer", "pattern"]),
        ("condor.pool", "a.b", ["condor", "pool", "pattern"]),
        ("condor.submitter.replicas", 0, ["replicas"]),
        ("condor.submitter.state.accessMode", "RWX", ["accessMode"]),
        ("condor.submitter.state.size", "many", ["size", "pattern"]),
        ("oauth2Proxy.audiences", "x", ["oauth2Proxy", "audiences", "array"]),
        # What no schema can see.
        ("hostname", "", ["hostname: say by which name virtual kubelets"]),
        ("oauth2ProxyIamIssuer", "", ["oauth2ProxyIamIssuer: say whose tokens"]),
        ("iamClientId", "", ["iamClientId: say which client"]),
        ("iamClientSecret", "", ["iamClientSecret: give the secret of iamClientId"]),
        (
            "iamClientSecretFrom",
            {"name": "x"},
            ["iamClientSecret and iamClientSecretFrom: give one"],
        ),
        ("oauth2ProxyCookieSecret", "short", ["oauth2ProxyCookieSecret: must have 16, 24 or 32"]),
        ("oauth2ProxyCookieSecret", "=" * 44, ["oauth2ProxyCookieSecret: must have 16, 24 or 32"]),
        ("backendIamIssuer", "", ["backendIamIssuer: say who gives"]),
        ("backendIamClientId", "", ["backendIamClientId: say which client"]),
        ("backendIamClientSecret", "", ["backendIamClientSecret: give the secret"]),
        (
            "backendIamRefreshTokenFrom",
            {"name": "x"},
            ["backendIamRefreshTokenFrom.key: say which"],
        ),
        ("pluginCondorPool", "", ["pluginCondorPool: name the collector"]),
        ("pluginCondorScheduler", "", ["pluginCondorScheduler: name the schedd"]),
        ("certManagerEmailAddress", "", ["certManagerEmailAddress: say to whom"]),
        ("ingress.tls.issuer.name", "x", ["certManagerEmailAddress and ingress.tls.issuer: the"]),
        ("condor.submitter.replicas", 2, ["condor.submitter.replicas: several of them share"]),
        ("nats.enabled", False, ["nats.enabled: with condor.enabled the plugin"]),
        ("nats.sites", [{"name": "a", "pools": ["p"]}], ["nats.sites: with condor.enabled"]),
        ("virtualNodes", [{"name": "a"}], ["virtualNodes: with condor.enabled"]),
        ("masterQueue.enabled", True, ["masterQueue.enabled: with condor.enabled"]),
        ("test.pool", "condor", ["test.pool: with condor.enabled"]),
        ("condor.enabled", False, [ONLY]),
    ],
)
def test_a_mistake_about_a_computing_element_is_told(
    path: str, value: Any, words: list[str]
) -> None:
    said = refusal(changed(path, value, CONDOR))
    assert [word for word in words if word not in said] == [], said
    assert [secret for secret in SECRETS.values() if secret in said] == []


@pytest.mark.parametrize("key", sorted({*CONDOR} - {*MINIMAL, "condor"}))
def test_what_is_for_a_computing_element_only_is_told(key: str) -> None:
    assert f"{key}: {ONLY}" in refusal({**MINIMAL, key: CONDOR[key]})


def test_a_secret_of_ones_own_needs_its_key() -> None:
    without = {key: value for key, value in CONDOR.items() if key not in SECRETS}
    for key in SECRETS:
        named = {f"{each}From": {"name": "x", "key": "y"} for each in SECRETS}
        said = refusal({**without, **named, f"{key}From": {"name": "x"}})
        assert f"{key}From.key: say which key of the Secret x it is" in said
