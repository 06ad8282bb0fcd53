"""What import-slurm-config makes of interLink's old file runs pods at a real site."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.sites.slurm.site import USER_ID, SlurmSite
from tests.sites.slurm.system import TIMING, SlurmSystem, system_at

OLD = """\
SidecarPort: "4000"
SbatchPath: /nowhere/sbatch
ScancelPath: {home}/bin/scancel
SqueuePath: {home}/bin/squeue
SinfoPath: {home}/bin/sinfo
CommandPrefix: |
  export PREFIXED="it's so"
  echo "prefix $PREFIXED" >>{home}/trace
ImagePrefix: /srv/images/
SingularityPath: {home}/bin/apptainer
SingularityDefaultOptions: ["--no-eval --containall", "--env OLD=default"]
ExportPodData: true
DataRootFolder: {home}/data/
Namespace: vk
Tsocks: false
BashPath: /usr/bin/bash
VerboseLogging: true
ErrorsOnlyLogging: false
EnableProbes: true
DefaultFlavor: usual
Flavors:
  usual: {{Name: usual, SlurmFlags: ["-p short", "--comment=usual"]}}
  other: {{Name: other, SlurmFlags: ["--partition=main"]}}
  gpu: {{Name: gpu, SlurmFlags: ["--gres=gpu:1"]}}
"""
WRAPPER = '#!/bin/bash\necho "$0 $*" >>{home}/trace\nexec /usr/bin/{name} "$@"\n'
PROGRAMS = ("sbatch", "scancel", "squeue", "sinfo", "apptainer")


@pytest.fixture(scope="module")
def home(the_site: SlurmSite) -> Path:
    """Programs at places of their own, as the old file names them."""
    home = the_site.home / "old"
    (home / "bin").mkdir(parents=True)
    for name in PROGRAMS:
        (home / "bin" / name).write_text(WRAPPER.format(home=home, name=name))
        (home / "bin" / name).chmod(0o755)
    (home / "SlurmConfig.yaml").write_text(OLD.format(home=home))
    for path in [home, *home.rglob("*")]:
        os.chown(path, USER_ID, USER_ID)
    return home


@pytest.fixture(scope="module")
def pool(the_site: SlurmSite, home: Path) -> dict[str, Any]:
    """Imported on the login node, with variables that win over the file, as they did."""
    variables = [f"SLURMCONFIGPATH={home}/SlurmConfig.yaml", f"SBATCHPATH={home}/bin/sbatch"]
    command = ["-m", "submitter", "import-slurm-config", "--output", f"{home}/new.yaml"]
    python = [the_site.facts["python"], "-P", *command]
    where = f"PYTHONPATH={the_site.facts['repository']}"
    told = the_site.run("login", ["env", where, *variables, *python], "alice")
    assert told.returncode == 0, told.stderr
    assert "SBATCHPATH: replaces SbatchPath\n" in told.stderr
    (pool,) = yaml.safe_load((home / "new.yaml").read_text())["pools"]
    assert pool.pop("directory") == f"{home}/data/interlink"
    del pool["name"]
    return {**pool, "timing": TIMING}


@pytest.fixture(scope="module")
def the_system(
    the_site: SlurmSite, pool: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SlurmSystem]:
    with system_at(the_site, tmp_path_factory.mktemp("import"), pool=pool) as system:
        yield system


@pytest.fixture
def system(the_system: SlurmSystem, site: SlurmSite) -> SlurmSystem:
    return the_system


def test_a_pod_runs_as_the_old_file_says(system: SlurmSystem, home: Path) -> None:
    pod = system.run('echo "$OLD"; sleep 1', image="busybox_1.36.sif")
    number = system.until_running(pod)
    told = system.slurm.admin("scontrol", "show", "job", number)
    assert "Partition=short" in told
    assert system.slurm.admin("scontrol", "write", "batch_script", number, "-").startswith(
        "#!/usr/bin/bash\n"
    )
    assert system.end(pod) == (0, "")
    assert system.log(pod) == b"default\n"
    stubborn = system.run("trap '' TERM; while :; do sleep 0.2; done", image="busybox_1.36.sif")
    system.until_running(stubborn)
    system.plugin.delete(stubborn)
    system.until(lambda: not system.directory(stubborn).exists(), "the other one is gone", 60)
    trace = (home / "trace").read_text()
    assert "prefix it's so\n" in trace
    for name in PROGRAMS:
        assert f"{home}/bin/{name} " in trace
    assert "--containall" in trace


def test_other_flavors_are_for_who_asks_for_them(system: SlurmSystem) -> None:
    image = "busybox_1.36.sif"
    gpus = {"limits": {"nvidia.com/gpu": "1"}}
    other = system.run("sleep 20", image=image, says={"flavor": "other"})
    with_gpu = system.run("sleep 20", image=image, resources=gpus)
    for pod, words in ((other, "Partition=main"), (with_gpu, "gres/gpu=1")):
        number = system.until_running(pod)
        assert words in system.slurm.admin("scontrol", "show", "job", number)
