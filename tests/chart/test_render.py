"""What the chart makes of values: rendered by the real helm, read by who it is for."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import tomllib
import yaml

from kueue_nats.spec.settings import load as load_kueue
from plugin_server.common.settings import load as load_plugin
from submitter.backends.registry import make_backend
from submitter.cli import config_file
from templates.nats import accounts, permissions, subjects
from tests.chart.golden import GOLDEN, golden
from tests.chart.helm import (
    CHART,
    EVERYTHING,
    KUBERNETES,
    MATRIX,
    MINIMAL,
    SECRETS,
    Json,
    containers,
    helm,
    objects,
    one,
    pods,
    text_of,
)
from tests.support.nats_server import program

every = pytest.mark.parametrize("name", MATRIX)


@every
def test_helm_has_nothing_to_say_against_it(name: str) -> None:
    done = helm("lint", "--strict", str(CHART), *KUBERNETES, values=MATRIX[name])
    assert done.returncode == 0, done.stdout + done.stderr


@every
def test_no_object_is_there_twice(name: str) -> None:
    found = [
        (o["kind"], o["metadata"].get("namespace", ""), o["metadata"]["name"])
        for o in objects(name)
    ]
    assert len(found) == len(set(found))


@every
def test_no_secret_stands_anywhere_but_in_a_secret(name: str) -> None:
    found = objects(name)
    secrets = [
        base64.b64decode(text).decode()
        for o in found
        if o["kind"] == "Secret"
        for text in o.get("data", {}).values()
    ]
    secrets += [t for o in found if o["kind"] == "Secret" for t in o.get("stringData", {}).values()]
    secrets += [text for key, text in SECRETS.items() if MATRIX[name].get(key)]
    others = json.dumps([o for o in found if o["kind"] != "Secret"])
    assert [s for s in secrets if len(s) > 8 and json.dumps(s)[1:-1] in others] == []
    assert "PRIVATE KEY" not in others


@every
def test_nobody_is_root_or_writes_where_it_should_not(name: str) -> None:
    for where, spec in pods(objects(name)).items():
        if where.endswith("-pod"):
            continue  # it runs at a site
        assert spec["automountServiceAccountToken"] is False, where
        assert spec["securityContext"]["runAsNonRoot"] is True, where
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, where
        for container in containers(spec):
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}


@every
def test_the_programs_accept_their_configurations(name: str, tmp_path: Path) -> None:
    maps = {o["metadata"]["name"]: o["data"] for o in objects(name) if o["kind"] == "ConfigMap"}
    seen = 0
    for data in maps.values():
        if "plugin.yaml" in data:
            path = tmp_path / "plugin.yaml"
            path.write_text(data["plugin.yaml"])
            settings = load_plugin({"INTERLINK_PLUGIN_CONFIG": str(path)})
            assert settings.listen == "unix:///run/interlink/plugin.sock"
            seen += 1
        if "kueue-nats.yaml" in data:
            load_kueue(data["kueue-nats.yaml"], "kueue-nats.yaml", {})
            seen += 1
        if "submitter.yaml" in data:
            (pool,) = config_file.load(data["submitter.yaml"], "submitter.yaml").pools
            assert make_backend(pool).pool.name == MATRIX[name]["condor"].get("pool", "condor")
            seen += 1
        if "oauth2-proxy.cfg" in data:
            assert tomllib.loads(data["oauth2-proxy.cfg"])["skip_jwt_bearer_tokens"] is True
    assert seen == len(MATRIX[name].get("virtualNodes", [0])) + (name != "only-virtual-nodes")


CONFIGURED = {"plugin": "plugin.yaml", "oauth2-proxy": "oauth2-proxy.yaml"}
CONFIGURED |= {"submitter": "submitter.yaml", "kueue-nats": "kueue-nats.yaml"}


@every
def test_every_file_that_is_named_is_mounted(name: str) -> None:
    found = objects(name)
    seen = set()
    for where, spec in pods(found).items():
        volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
        for container in containers(spec):
            if container["name"] not in CONFIGURED or "volumeMounts" not in container:
                continue
            text = one(found, "ConfigMap", where)["data"][CONFIGURED[container["name"]]]
            there = [path for mount in container["volumeMounts"] for path in files(mount, volumes)]
            for path in re.findall(r"(?<=[\s\"])/(?:etc|run|var)/[\w/.-]+", text):
                assert any(f"{path}/".startswith(place) for place in there), (where, path)
                seen.add(container["name"])
    assert seen


def files(mount: Json, volumes: dict[str, Json]) -> list[str]:
    """What a mount brings: the files of Secrets one by one, else its folder."""
    volume, folder = volumes[mount["name"]], mount["mountPath"]
    sources = [s.get("secret", {}) for s in volume.get("projected", {}).get("sources", [])]
    sources += [volume["secret"]] if "secret" in volume else []
    if not sources:
        return [f"{folder}/"]
    return [f"{folder}/{item['path']}/" for source in sources for item in source.get("items", [])]


# --- NATS -----------------------------------------------------------------------------------------


def configuration(name: str) -> str:
    text: str = one(objects(name), "ConfigMap", "il-interlink-nats-nats")["data"]["nats.conf"]
    return text


def passwords(name: str) -> dict[str, str]:
    """The server's environment, as the kubelet makes it."""
    spec = one(objects(name), "StatefulSet", "il-interlink-nats-nats")["spec"]["template"]["spec"]
    environment: dict[str, str] = {}
    for variable in spec["containers"][0]["env"]:
        value = variable.get("value", "9$1e5 {x#")  # what a password may hold
        for known, text in list(environment.items()):
            value = value.replace(f"$({known})", text)
        environment[variable["name"]] = value
    return environment


@pytest.mark.parametrize(
    "name", [n for n in MATRIX if MATRIX[n].get("nats", {}).get("enabled", True)]
)
def test_the_server_takes_its_configuration(name: str, tmp_path: Path) -> None:
    text = configuration(name)
    # Certificates are in Secrets, which only a cluster has.
    text = re.sub(r"tls \{[^}]*\}", "no_tls: true" if "no_tls" not in text else "", text, count=0)
    text = re.sub(r"^no_tls: true", "", text, flags=re.MULTILINE)
    (tmp_path / "nats.conf").write_text(text)
    done = subprocess.run(
        [program(), "--config", str(tmp_path / "nats.conf"), "-t"],
        env=passwords(name),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr + text


def users(text: str) -> dict[str, permissions.Permissions]:
    """Who may what, by the first thing that the configuration says of each."""
    found = {}
    parts = re.split(r"\{\s*(user|nkey): ", text)[1:]
    for _, rest in zip(parts[::2], parts[1::2]):
        lists = [json.loads(words) for words in re.findall(r"allow: (\[.*?\])", rest, re.DOTALL)]
        found[rest.split('"')[1]] = permissions.Permissions(tuple(lists[0]), tuple(lists[1]))
    return found


def test_users_may_what_the_project_says_and_no_more() -> None:
    root = EVERYTHING["subjectRoot"]
    expected = {role: permissions.role_permissions(root, role) for role in subjects.ROLES}
    for site in EVERYTHING["nats"]["sites"]:
        who = site.get("nkey", site["name"])
        expected[who] = permissions.site_permissions(root, site["name"], site["pools"])
    found = users(configuration("everything"))
    assert {who: sorted_(may) for who, may in found.items()} == {
        who: sorted_(may) for who, may in expected.items()
    }


def crossings(text: str) -> dict[str, list[str]]:
    """What each account exports and imports."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if match := re.fullmatch(r'  "([\w-]+)": \{', line):
            found[match[1]] = []
        elif re.fullmatch(r"\{.*\}", line.strip()):
            found[list(found)[-1]].append(json.dumps(json.loads(line), sort_keys=True))
    return {name: sorted(entries) for name, entries in found.items()}


def test_what_passes_between_accounts_is_what_the_project_says() -> None:
    root = EVERYTHING["subjectRoot"]
    pools = {site["name"]: site["pools"] for site in EVERYTHING["nats"]["sites"]}
    expected = {name: accounts.site_account(root, own, []) for name, own in pools.items()}
    expected["cluster"] = accounts.cluster_account(root, pools, [])
    text = configuration("everything")
    assert crossings(text) == {
        name: sorted(json.dumps(e, sort_keys=True) for e in made["exports"] + made["imports"])
        for name, made in expected.items()
    }
    for made in list(expected.values())[:-1]:
        limits = ", ".join(f"{key}: {value}" for key, value in made["limits"].items())
        assert f"limits: {{{limits}}}" in text
    for key, value in accounts.SERVER_LIMITS.items():
        assert f"{key}: {json.dumps(value) if str(value).endswith('s') else value}\n" in text


def sorted_(may: permissions.Permissions) -> Any:
    return sorted(may.publish), sorted(may.subscribe)


def test_only_who_has_no_key_gets_a_password() -> None:
    secret = one(objects("everything"), "Secret", "il-interlink-nats-nats-users")
    assert set(secret["data"]) == {"plugin", "kueue", "operator", "lab"}
    lengths = {len(base64.b64decode(text)) for text in secret["data"].values()}
    assert lengths == {40}
    assert len(set(secret["data"].values())) == 4


# --- rights ---------------------------------------------------------------------------------------


def rules_of(found: list[Json], kind: str, name: str) -> list[Json]:
    rules: list[Json] = one(found, kind, name)["rules"]
    return rules


def test_the_operator_has_the_rights_of_its_file() -> None:
    rules = yaml.safe_load((CHART / "files" / "kueue-nats-rules.yaml").read_text())
    found = objects("minimal")
    assert rules_of(found, "ClusterRole", "batch-il-interlink-nats-kueue") == rules["cluster"]
    assert rules_of(found, "Role", "il-interlink-nats-kueue") == rules["namespace"]
    assert rules_of(found, "Role", "batch-il-interlink-nats-kueue") == rules["default"]


def test_a_virtual_kubelet_may_change_its_own_node_only() -> None:
    for rule in rules_of(objects("everything"), "ClusterRole", "batch-il-interlink-nats-gpu"):
        if "nodes" in rule["resources"] and set(rule["verbs"]) & {"update", "patch", "delete"}:
            assert rule["resourceNames"] == ["gpu"]


def test_tokens_are_made_only_where_they_travel() -> None:
    found = objects("everything")
    making = {
        name: any("serviceaccounts/token" in rule["resources"] for rule in found_rules)
        for name in ("cpu", "gpu")
        for found_rules in [rules_of(found, "ClusterRole", f"batch-il-interlink-nats-{name}")]
    }
    assert making == {"cpu": True, "gpu": False}


def test_the_plugin_does_not_see_the_account_of_the_virtual_kubelet() -> None:
    (spec,) = (s for n, s in pods(objects("minimal")).items() if n == "il-interlink-nats-interlink")
    mounted = {
        c["name"]: [m["name"] for m in c["volumeMounts"] if m["name"] in ("account", "orphans")]
        for c in containers(spec)
    }
    assert mounted == {"plugin": ["orphans"], "interlink": [], "virtual-kubelet": ["account"]}


@pytest.mark.parametrize("name", ["minimal", "everything", "condor", "condor-everything"])
def test_what_is_talked_to_begins_before_and_ends_after_who_talks(name: str) -> None:
    for spec in pods(objects(name)).values():
        sidecars = [c["name"] for c in spec.get("initContainers", []) if "restartPolicy" in c]
        (first, *_) = spec["containers"]
        talks = first["name"] in ("virtual-kubelet", "oauth2-proxy")
        assert sidecars == (["plugin", "interlink"] if talks else [])


# --- what stays the same --------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(GOLDEN), ids=lambda path: path.stem)
def test_important_objects_are_as_they_were(path: Path) -> None:
    assert golden(path) == path.read_text(), "python -m tests.chart.golden writes them anew"


def test_a_changed_configuration_restarts_who_reads_it() -> None:
    def checksums(values: Json) -> dict[str, Any]:
        rendered = [o for o in yaml.safe_load_all(text_of(values)) if o]
        return {
            o["metadata"]["name"].removeprefix("il-interlink-nats-"): o["spec"]["template"][
                "metadata"
            ]["annotations"]["checksum/config"]
            for o in rendered
            if o["kind"] in ("Deployment", "StatefulSet")
        }

    before = checksums(MINIMAL)
    assert before == checksums(MINIMAL)
    for change, who in (
        ({"nats": {"sites": [{"name": "a", "pools": ["a"]}]}}, {"nats"}),
        ({"kueueNats": {"settings": {"poll_s": 5}}}, {"kueue"}),
        ({"virtualNode": {"defaultPool": "a"}}, {"interlink"}),
        ({"logging": {"level": "debug"}}, {"interlink", "kueue"}),
    ):
        after = checksums({**MINIMAL, **change})
        assert {name for name in before if before[name] != after[name]} == who


def test_the_port_of_logs_is_closed_where_nobody_says_who_the_api_server_is() -> None:
    """A helm that cannot look into the cluster; test_server.py has one that can."""
    policies = [o for o in objects("minimal") if o["kind"] == "NetworkPolicy"]
    ports = [p["port"] for o in policies for rule in o["spec"]["ingress"] for p in rule["ports"]]
    assert "kubelet" not in ports
