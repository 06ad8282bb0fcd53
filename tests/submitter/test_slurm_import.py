"""From SlurmConfig.yaml to submitter.yaml, with a word about every key."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from submitter import slurm_import
from submitter.main import main
from templates.legacy_config import REFUSED, UNDERSTOOD

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
  default: {Name: default, CPUDefault: 2, SlurmFlags: ["--partition=cpu"]}
  gpu: {Name: gpu, UID: 7, SlurmFlags: ["-p gpu", "--gres=gpu:1", "--exclusive"]}
Foo: 1
"""


def test_every_key_gets_a_line_and_works_or_is_refused() -> None:
    made = slurm_import.convert(OLD, "old", {"SBATCHPATH": "/x/sbatch", "SHARED_FS": "true"})
    (pool,) = yaml.safe_load(made.text)["pools"]
    assert pool["directory"] == "/shared/interlink/interlink"
    assert pool["options"]["programs"] == {"sbatch": "/x/sbatch", "squeue": "/usr/bin/squeue"}
    assert pool["options"]["flavors"] == [
        {"name": "gpu", "flags": ["--exclusive"], "partition": "gpu", "min_gpus": 1},
        {"name": "default", "partition": "cpu"},
    ]
    assert pool["build"]["runtime"] == {
        "executable": "/opt/bin/apptainer",
        "name": "apptainer",
        "options": ["--nv", "--no-eval", "--containall"],
    }
    assert pool["build"]["script"] == {"header": "module load x", "bash": "/bin/bash"}
    told = {line.partition(":")[0] for line in made.report}
    assert set(yaml.safe_load(OLD)) | {"SBATCHPATH", "SHARED_FS"} <= told
    lines = dict(line.split(": ", 1) for line in made.report)
    assert lines["Foo"].startswith("refused: is no key")
    assert lines["Flavors.gpu.UID"].startswith("refused: ")


def test_every_key_of_the_old_plugin_has_its_line() -> None:
    names = [name for name in (*UNDERSTOOD, *REFUSED) if "." not in name]
    for name in names:
        made = slurm_import.convert(f"{name}: x", "old", {})
        line = next(line for line in made.report if line.startswith(f"{name}: "))
        assert "is no key" not in line


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = tmp_path / "SlurmConfig.yaml", tmp_path / "submitter.yaml"
    old.write_text(OLD)
    assert main(["import-slurm-config", str(old), "--output", str(new)]) == 0
    told = capsys.readouterr()
    assert told.out == ""
    assert "SidecarPort: refused: the submitter listens nowhere" in told.err
    assert "backend: slurm" in new.read_text()
    assert main(["import-slurm-config", str(tmp_path / "none")]) == 2
    old.write_text("- 1\n")
    assert main(["import-slurm-config", str(old)]) == 2
