"""What docs/kueue.md and its examples say is what the code, the definition and the chart say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from kueue_nats.operator.metrics import Metrics
from kueue_nats.spec import masterqueue, settings
from tests.support.sources import REPO
from tests.unit.kueue_nats.masters import manifest

PAGE = (REPO / "docs" / "kueue.md").read_text(encoding="utf-8")
CRD = yaml.safe_load((REPO / "chart" / "crds" / "masterqueue.yaml").read_text())
RULES = yaml.safe_load((REPO / "chart" / "files" / "kueue-nats-rules.yaml").read_text())
SCHEMA = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]


def example(name: str) -> list[dict[str, Any]]:
    text = (REPO / "docs" / "examples" / name).read_text(encoding="utf-8")
    return [one for one in yaml.safe_load_all(text) if one]


def of_kind(items: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """Namespace -> the one object of this kind there."""
    return {item["metadata"].get("namespace", ""): item for item in items if item["kind"] == kind}


def test_the_operator_of_the_example_has_exactly_the_rights_of_the_chart() -> None:
    items = example("kueue-nats.yaml")
    (cluster,) = of_kind(items, "ClusterRole").values()
    roles = of_kind(items, "Role")
    assert cluster["rules"] == RULES["cluster"]
    assert roles["kueue-nats"]["rules"] == RULES["namespace"]
    assert roles["default"]["rules"] == RULES["default"]
    account = {"kind": "ServiceAccount", "name": "kueue-nats", "namespace": "kueue-nats"}
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        for binding in of_kind(items, kind).values():
            assert binding["subjects"] == [account]


def test_no_right_lets_it_write_what_is_not_its_own() -> None:
    for rule in (rule for part in RULES.values() for rule in part):
        assert "*" not in {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
    secrets = [rule for part in RULES.values() for rule in part if "secrets" in rule["resources"]]
    assert [rule["verbs"] for rule in secrets] == [["get"]]
    assert "secrets" not in {name for rule in RULES["cluster"] for name in rule["resources"]}


def test_the_settings_of_the_example_are_settings() -> None:
    (config,) = of_kind(example("kueue-nats.yaml"), "ConfigMap").values()
    (deployment,) = of_kind(example("kueue-nats.yaml"), "Deployment").values()
    loaded = settings.load(config["data"]["kueue-nats.yaml"], "example", {})
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    port = container["ports"][0]["containerPort"]
    assert loaded.listen == f"0.0.0.0:{port}"
    assert container["args"][0] == "--config"


def test_the_master_queue_of_the_example_is_what_users_have() -> None:
    (raw,) = of_kind(example("kueue-queues.yaml"), "MasterQueue").values()
    assert masterqueue.read(raw) == manifest()


@pytest.mark.parametrize("name", ["kueue-queues.yaml", "kueue-jobs.yaml", "kueue-nats.yaml"])
def test_every_example_is_told_of(name: str) -> None:
    assert f"docs/examples/{name}" in PAGE


# --- fields ---------------------------------------------------------------------------------------


def fields(schema: dict[str, Any], *path: str) -> Iterator[str]:
    """The names of the fields at a place of the definition."""
    for name in path:
        schema = schema["properties"][name] if name != "[]" else schema["items"]
    yield from schema["properties"]


def documented() -> set[str]:
    """The last parts of all names in backticks."""
    return {
        name.rpartition(".")[2].removesuffix("[]") for name in re.findall(r"`([\w.\[\]]+)`", PAGE)
    }


@pytest.mark.parametrize(
    "path",
    [
        (),
        ("flavors", "[]"),
        ("flavors", "[]", "natsFlavor"),
        ("flavors", "[]", "natsFlavor", "natsConnectorSecretRef"),
        ("flavors", "[]", "canLendTo", "[]"),
        ("template",),
        ("template", "preemption"),
        ("template", "flavorFungibility"),
        ("template", "fairSharing"),
    ],
)
def test_every_field_is_documented(path: tuple[str, ...]) -> None:
    assert set(fields(SCHEMA["spec"], *path)) - documented() == set()


def test_defaults_are_those_of_the_definition() -> None:
    nats = SCHEMA["spec"]["properties"]["flavors"]["items"]["properties"]["natsFlavor"]
    rows = dict(re.findall(r"^\| `(\w+)` \| `?([^|`]*?)`? \| ", PAGE, re.MULTILINE))
    for name, field in nats["properties"].items():
        if "default" in field:
            assert rows[name] == str(field["default"]), name


def test_every_condition_and_reason_is_documented() -> None:
    source = "".join(path.read_text() for path in (REPO / "kueue_nats").rglob("*.py"))
    reasons = set(re.findall(r'Condition\(\w+, FALSE, "(\w+)"', source))
    reasons |= set(re.findall(r'_write_failure\(raw, "(\w+)"', source))
    reasons |= {"PoolsLost", "PoolsUnused", "Warning"}
    assert len(reasons) >= 11
    assert reasons - documented() == set()


def test_the_metrics_are_those_of_the_page() -> None:
    page = Metrics().page().decode()
    there = set(re.findall(r"^# TYPE (\w+) ", page, re.MULTILINE))
    told = set(re.findall(r"^\| `(kueue_nats_\w+)", PAGE, re.MULTILINE))
    assert {name for name in there if not name.endswith("_created")} == told


def test_what_plan_prints_of_the_page_is_read(tmp_path: Any, capsys: Any) -> None:
    from kueue_nats.main import main

    resources = next(
        block for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if "gpu-b" in block
    )
    (tmp_path / "pools.yaml").write_text(resources)
    queues = str(REPO / "docs" / "examples" / "kueue-queues.yaml")
    assert main(["plan", "-f", queues, "--resources", str(tmp_path / "pools.yaml")]) == 0
    out = capsys.readouterr().out
    assert "# masterqueue: interlink: gpu-b: Active" in out
    assert "# masterqueue: interlink: slurm-a: Active" in out
