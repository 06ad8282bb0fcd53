"""``kueue-nats plan``, as somebody types it who wants to see before anything is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kueue_nats.main import main
from tests.unit.kueue_nats.masters import MANIFEST


class Typed:
    """What was typed, and what came of it."""

    def __init__(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = tmp_path, capsys
        self.out = self.err = ""

    def file(self, name: str, content: str) -> str:
        (self.folder / name).write_text(content)
        return str(self.folder / name)

    def plan(self, *words: str) -> int:
        code = main(["plan", *words])
        self.out, self.err = self._capsys.readouterr()
        return code

    def objects(self) -> dict[str, Any]:
        found = [one for one in yaml.safe_load_all(self.out) if one]
        return {f"{one['kind']}/{one['metadata']['name']}": one for one in found}


@pytest.fixture
def typed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Typed:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return Typed(tmp_path, capsys)


RESOURCES = """\
slurm-a: {cpu: 64, memory: 256Gi, pods: 500}
Edge_1: {quotas: {cpu: "8", nvidia.com/gpu: "2"}, labels: [site=b], taints: ["k=v:NoSchedule"]}
"""


def test_the_manifest_and_what_pools_publish_make_objects(typed: Typed) -> None:
    code = typed.plan(
        "-f", typed.file("mq.yaml", MANIFEST), "--resources", typed.file("r", RESOURCES)
    )
    assert (code, typed.err) == (0, "")
    made = typed.objects()
    edge = next(name for name in made if "edge" in name)
    assert set(made) == {
        "ResourceFlavor/masterqueue.interlink.slurm-a",
        edge,
        "ClusterQueue/masterqueue",
        "ClusterQueue/group1",
    }
    assert made[edge]["metadata"]["labels"]["site"] == "b"
    (group,) = made["ClusterQueue/masterqueue"]["spec"]["resourceGroups"]
    quotas = {
        f["name"]: {r["name"]: r["nominalQuota"] for r in f["resources"]} for f in group["flavors"]
    }
    assert quotas["masterqueue.interlink.slurm-a"]["cpu"] == "64"
    assert quotas["masterqueue.interlink.slurm-a"]["pods"] == "100"
    assert "# masterqueue: interlink: slurm-a: Active\n" in typed.out


def test_without_pools_it_says_what_is_there_at_first(typed: Typed) -> None:
    assert typed.plan("-f", typed.file("mq.yaml", MANIFEST)) == 0
    assert set(typed.objects()) == {"ClusterQueue/masterqueue", "ClusterQueue/group1"}


def test_other_objects_in_the_file_are_left_out(typed: Typed) -> None:
    more = f"kind: Namespace\nmetadata: {{name: x}}\n---\n{MANIFEST}---\n# nothing\n---\n[1]\n"
    assert typed.plan("-f", typed.file("mq.yaml", more)) == 0
    assert "Namespace" not in typed.out


def test_a_pool_that_is_not_used_says_why(typed: Typed) -> None:
    resources = 'bad: {quotas: {cpu: 1}, taints: ["nonsense"]}'
    arguments = ("-f", typed.file("mq.yaml", MANIFEST), "--resources", typed.file("r", resources))
    assert typed.plan(*arguments) == 0
    words = "# masterqueue: interlink: bad: Unused: taints: nonsense is not key=value:effect\n"
    assert words in typed.out


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        ("", "holds no MasterQueue"),
        ("kind: Pod", "holds no MasterQueue"),
        ("{", "is not YAML: "),
        ("\x00", "is not YAML: "),
        ("kind: MasterQueue", "metadata.name: must be a name"),
        (MANIFEST.replace("local-cpu", "Local"), "spec.flavors[1].name: "),
        (MANIFEST.replace("poolTimeout: 30", "poolTimeout: soon"), "poolTimeout: must be a whole"),
        (
            MANIFEST.replace("cohort: masterqueue", "stopPolicy: Stop"),
            "spec.template.stopPolicy: Stop is not a word of Kueue's: write Hold",
        ),
        (MANIFEST.replace("pods: 30", "pods: many"), "lendingLimit['pods']: not a quantity: many"),
    ],
)
def test_a_wrong_manifest_is_one_line(typed: Typed, manifest: str, words: str) -> None:
    path = typed.file("mq.yaml", manifest)
    assert typed.plan("-f", path) == 2
    assert typed.err.startswith(f"kueue-nats: {path}: ")
    assert words in typed.err
    assert typed.err.count("\n") == 1
    assert typed.out == ""


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        ("[a]", "must be a mapping of pools to what they publish"),
        ("p: 1", "p: "),
        ("p: {cpu: many}", "p: "),
        ("a.b: {cpu: 1}", "a.b"),
        ("p: {quotas: {cpu: 1}, labels: x}", "p: "),
        ("{", "line 1"),
    ],
)
def test_wrong_resources_are_one_line(typed: Typed, resources: str, words: str) -> None:
    path = typed.file("r.yaml", resources)
    assert typed.plan("-f", typed.file("mq.yaml", MANIFEST), "--resources", path) == 2
    assert typed.err.startswith(f"kueue-nats: {path}: ")
    assert words in typed.err
    assert typed.err.count("\n") == 1


@pytest.mark.parametrize("which", ["-f", "--resources"])
def test_a_file_that_is_not_there_is_named(typed: Typed, which: str) -> None:
    path = str(typed.folder / "nowhere")
    manifest = path if which == "-f" else typed.file("mq.yaml", MANIFEST)
    more = [] if which == "-f" else ["--resources", path]
    assert typed.plan("-f", manifest, *more) == 2
    assert typed.err == f"kueue-nats: {path}: No such file or directory\n"


def test_a_difference_needs_a_cluster(typed: Typed) -> None:
    path = typed.file("mq.yaml", MANIFEST)
    assert typed.plan("-f", path, "--diff") == 2
    assert typed.err.startswith("kueue-nats: kubeconfig: ")
    config = typed.file("kueue-nats.yaml", "kubeconfig: /nowhere/config\n")
    assert main(["--config", config, "plan", "-f", path, "--diff"]) == 2


def test_a_cluster_that_does_not_answer_is_one_line(typed: Typed) -> None:
    kubeconfig = typed.file(
        "kubeconfig",
        yaml.safe_dump(
            {
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
                "users": [{"name": "u", "user": {"token": "hidden"}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        ),
    )
    config = typed.file("kueue-nats.yaml", f"kubeconfig: {kubeconfig}\n")
    code = main(["--config", config, "plan", "-f", typed.file("mq.yaml", MANIFEST), "--diff"])
    out, err = typed._capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith("kueue-nats: cluster: finding out the version of Kueue's API: ")
    assert err.count("\n") == 1 and "hidden" not in err
