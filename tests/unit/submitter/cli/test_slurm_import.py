"""From SlurmConfig.yaml to submitter.yaml, with a word about every key."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from submitter.cli import config_file, slurm_import
from submitter.main import main
from templates.site.build_config import ON_THE_NODE
from templates.site.legacy import REFUSED, UNDERSTOOD

OLD = """
SidecarPort: 4000
SbatchPath: /usr/bin/sbatch
SqueuePath: /usr/bin/squeue
CommandPrefix: module load x
ImagePrefix: docker://
DataRootFolder: /shared/interlink/
SingularityPath: /opt/bin/apptainer
SingularityDefaultOptions: ["--nv", "--no-eval --containall"]
ExportPodData: true
TsocksPath: /lib/libtsocks.so
BashPath: /bin/bash
VerboseLogging: true
DefaultFlavor: default
Flavors:
  big: {Name: big, SlurmFlags: "-N 2 -C ib --mem=90G"}
  default: {Name: default, CPUDefault: 2, SlurmFlags: ["--partition=cpu"]}
  gpu: {Name: gpu, UID: 7, SlurmFlags: ["-p gpu", "--gres=gpu:1,shard:2", "--exclusive"]}
  odd: {Name: odd, SlurmFlags: ["--uid=0"]}
Foo: 1
"""


def test_every_key_gets_a_line_and_works_or_is_refused() -> None:
    made = slurm_import.convert(OLD, "old", {"SBATCHPATH": "/x/sbatch", "SHARED_FS": "true"})
    (pool,) = yaml.safe_load(made.text)["pools"]
    assert pool["directory"] == "/shared/interlink/interlink"
    assert pool["options"]["programs"] == {"sbatch": "/x/sbatch", "squeue": "/usr/bin/squeue"}
    # A pod that says nothing gets the default one, as ever: others need GPUs or their annotation.
    assert pool["options"]["flavors"] == [
        {
            "name": "gpu",
            "flags": ["--exclusive", "--gres=shard:2"],
            "partition": "gpu",
            "min_gpus": 1,
        },
        {"name": "default", "partition": "cpu"},
        {"name": "big", "flags": ["--nodes=2", "--mem=90G"], "constraint": "ib"},
        {"name": "odd"},
    ]
    assert pool["build"]["runtime"] == {
        "executable": "/opt/bin/apptainer",
        "name": "apptainer",
        "options": ["--nv", "--no-eval", "--containall"],
    }
    assert pool["build"]["script"] == {"header": "module load x", "bash": "/bin/bash"}
    assert pool["build"]["rules"]["annotations"] == ["*", *ON_THE_NODE]
    told = {line.partition(":")[0] for line in made.report}
    assert set(yaml.safe_load(OLD)) | {"SBATCHPATH", "SHARED_FS"} <= told
    lines = dict(line.split(": ", 1) for line in made.report)
    assert lines["Foo"].startswith("refused: is no key")
    assert lines["Flavors.gpu.UID"].startswith("refused: ")
    assert lines["Flavors.odd.SlurmFlags"].startswith("refused, all of them: --uid cannot be")


def test_users_keep_all_their_annotations_and_the_site_is_told_what_that_means() -> None:
    made = slurm_import.convert(OLD, "old", {})
    (pool,) = config_file.load(made.text, "submitter.yaml").pools
    told = "\n".join(made.report)
    for name in ON_THE_NODE:
        assert pool.build.rules.refusal(name) == ""
        assert name in told
    assert "outside of any container" in told
    assert pool.policy.host_paths == ("/",)
    assert "pools[0].policy: allows" in told


def test_where_no_flavor_was_the_default_one_pods_still_get_none() -> None:
    made = slurm_import.convert("Flavors: {100: {SlurmFlags: [-p x]}}\nDefaultFlavor: y", "old", {})
    (pool,) = yaml.safe_load(made.text)["pools"]
    assert pool["options"]["flavors"] == [{"name": "plain"}, {"name": "100", "partition": "x"}]
    assert "DefaultFlavor: refused: there is no such flavor" in made.report


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Flavors: [a]", "Flavors: refused: must be a mapping of flavors"),
        ("Flavors: {a: x}", "Flavors.a: refused: must be a mapping of its keys"),
        ("Flavors: {a: {SlurmFlags: 1}}", "Flavors.a.SlurmFlags: refused, all of them: must be a"),
        ('Flavors: {a: {SlurmFlags: ["\'"]}}', "Flavors.a.SlurmFlags: refused, all of them: No"),
        ("Taints: [x]", "Taints: refused: must be a list of taints"),
        ("DataRootFolder: .local/jobs/", "DataRootFolder: refused: pools[0].directory must be an"),
    ],
)
def test_values_that_are_none(text: str, line: str) -> None:
    report = slurm_import.convert(text, "old", {}).report
    assert [told for told in report if told.startswith(line)], report


def test_every_key_of_the_old_plugin_has_its_line() -> None:
    names = [name for name in (*UNDERSTOOD, *REFUSED) if "." not in name]
    for name in names:
        made = slurm_import.convert(f"{name}: x", "old", {})
        line = next(line for line in made.report if line.startswith(f"{name}: "))
        assert "is no key" not in line


def test_every_variable_of_the_old_plugin_has_its_line() -> None:
    variables = dict.fromkeys(slurm_import.VARIABLES, "/x")
    report = slurm_import.convert("Foo: x", "old", variables).report
    for name, key in slurm_import.VARIABLES.items():
        (line,) = [told for told in report if told.startswith(f"{name}: ")]
        assert line == f"{name}: replaces {key}" if key else len(line) > len(name) + 20
        if key:
            assert [told for told in report if told.startswith(f"{key}: ") and "no key" not in told]


def test_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = tmp_path / "SlurmConfig.yaml", tmp_path / "submitter.yaml"
    old.write_text(OLD)
    assert main(["import-slurm-config", str(old), "--output", str(new)]) == 0
    told = capsys.readouterr()
    assert told.out == ""
    assert "SidecarPort: refused: the submitter listens nowhere" in told.err
    assert "backend: slurm" in new.read_text()
    monkeypatch.setenv("SLURMCONFIGPATH", str(old))
    assert main(["import-slurm-config"]) == 0
    assert "backend: slurm" in capsys.readouterr().out
    assert main(["import-slurm-config", str(tmp_path / "none")]) == 2
    old.write_text("- 1\n")
    assert main(["import-slurm-config", str(old)]) == 2
