"""Values that are wrong are refused, in words that name the value."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.helm import MINIMAL, SITE_KEY, Json, refusal


def changed(path: str, value: Any) -> Json:
    """The smallest values, with one more."""
    *sections, last = path.split(".")
    root: Json = dict(MINIMAL)
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
