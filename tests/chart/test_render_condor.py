"""What the chart makes for a computing element elsewhere (condor.enabled)."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from templates.nats import permissions
from tests.chart.helm import CONDOR, EVERYTHING, REPO, Json, containers, objects, one, pods, text_of
from tests.chart.test_render import configuration, sorted_, users


def test_pods_of_other_clusters_are_no_orphans() -> None:
    """Looked for in this cluster, none would be found, and all jobs would be cancelled."""
    values = {**CONDOR, "virtualNode": {"plugin": {"orphans": True}}}
    found = [o for o in yaml.safe_load_all(text_of(values)) if o]
    settings = yaml.safe_load(
        one(found, "ConfigMap", "il-interlink-nats-api")["data"]["plugin.yaml"]
    )
    assert "orphans" not in settings
    assert settings["default_pool"] == "condor"
    kinds = {o["kind"] for o in found}
    assert not kinds & {"ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding", "MasterQueue"}


@pytest.mark.parametrize("name", ["condor", "condor-everything"])
def test_each_program_sees_its_own_secret_only(name: str) -> None:
    specs = pods(objects(name))
    api, submitter = specs["il-interlink-nats-api"], specs["il-interlink-nats-submitter"]
    front, element = secrets_of(api), secrets_of(submitter)
    assert front["oauth2-proxy"] - {"iam-ca"} == {
        "front" if name == "condor-everything" else "il-interlink-nats-oauth2-proxy"
    }
    assert not front["interlink"]
    assert not front["oauth2-proxy"] & (front["plugin"] | element["submitter"])


def secrets_of(spec: Json) -> dict[str, set[str]]:
    """Container -> the Secrets that it sees."""
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    found = {}
    for container in containers(spec):
        seen = json.dumps(
            [volumes[mount["name"]] for mount in container.get("volumeMounts", [])]
            + container.get("env", [])
        )
        found[container["name"]] = set(
            re.findall(
                r'(?:"secret": \{"name"|"secretName"|"secretKeyRef": \{"name"): "([^"]+)"', seen
            )
        )
    return found


def test_only_what_virtual_kubelets_ask_for_is_open() -> None:
    ingress = one(objects("condor"), "Ingress", "il-interlink-nats-api")
    (rule,) = ingress["spec"]["rules"]
    paths = {(path["path"], path["pathType"]) for path in rule["http"]["paths"]}
    asked = ("create", "delete", "status", "getLogs", "pinglink", "updateCache")
    assert paths == {(f"/{what}", "Exact") for what in asked}


def test_what_is_given_for_the_pool_counts_before_what_the_chart_says() -> None:
    text = one(objects("condor-everything"), "ConfigMap", "il-interlink-nats-submitter")["data"]
    (pool,) = yaml.safe_load(text["submitter.yaml"])["pools"]
    assert pool["options"]["tokens"]["audience"] == "another"
    assert pool["options"]["tokens"]["client_id"] == "interlink-ce"
    assert pool["options"]["disk"] == "10Gi"


def test_the_values_of_the_guide_are_enough() -> None:
    guide = (REPO / "docs" / "install.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```yaml\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    whole = [block for block in blocks if "images:" in block]
    (secrets,) = (block for block in blocks if "iamClientSecretFrom" in block)
    named = set(yaml.safe_load(secrets))
    kinds = []
    for block in whole:
        values = yaml.safe_load(block.replace(": ...", f": {'s' * 32}"))
        kinds.append({o["kind"] for o in yaml.safe_load_all(text_of(values)) if o})
        if "condor" in values:
            own = {key: value for key, value in values.items() if f"{key}From" not in named}
            text_of({**own, **yaml.safe_load(secrets)})
    assert ["ClusterRole" in found for found in kinds] == [True, False]


def test_the_submitter_of_the_release_is_a_site_like_any_other() -> None:
    text, pool = configuration("condor-everything"), "element"
    found = users(text)
    root = EVERYTHING["subjectRoot"]
    assert set(found) == {"plugin", "operator", "condor"}
    assert sorted_(found["condor"]) == sorted_(permissions.site_permissions(root, "condor", [pool]))
    assert "websocket" not in text
