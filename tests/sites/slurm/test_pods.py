"""What pods ask for by their annotations, resources and volumes, and what a site adds to them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.lib.interlink import Answer
from tests.sites.slurm.site import USER_ID, SlurmSite
from tests.sites.slurm.system import ALL_ANNOTATIONS, OWN_IMAGES, SlurmSystem, system_at
from tests.support.system import job_of

# As sites do it: modules from a file of their own, and a ticket that is renewed beside the job.
MODULES = 'module() { [ "$1 $2" = "load science" ] && export SCIENCE=/opt/science; }\n'
HEADER = """\
. {home}/modules.sh
module load science
(while :; do echo renewed >>{home}/ticket; sleep 0.2; done) >/dev/null 2>&1 &
export RENEWAL=$!
"""
FOOTER = 'kill "$RENEWAL"; rm {home}/ticket; echo "over $SCIENCE" >>{home}/footer'


@pytest.fixture(scope="module")
def the_system(
    the_site: SlurmSite, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SlurmSystem]:
    home = the_site.home / "pods-home"
    for folder in (home, home / "data", home / "guarded"):
        folder.mkdir()
        os.chown(folder, USER_ID, USER_ID)
    (home / "modules.sh").write_text(MODULES)
    paths = [
        {"path": f"{home}/data"},
        {"path": f"{home}/guarded", "read_only": True},
        {"path": f"{home}/ticket"},
    ]
    script = {"header": HEADER.format(home=home), "footer": FOOTER.format(home=home)}
    build = {
        "runtime": {"name": "apptainer"},
        "volumes": {"host_paths": paths},
        "script": script,
        "rules": ALL_ANNOTATIONS,
    }
    pool = {"build": build, "policy": {"images": OWN_IMAGES, "forbidden_flags": ["--nice"]}}
    with system_at(the_site, tmp_path_factory.mktemp("pods"), pool=pool) as system:
        yield system


@pytest.fixture
def system(the_system: SlurmSystem, site: SlurmSite) -> SlurmSystem:
    return the_system


@pytest.fixture
def home(system: SlurmSystem) -> Path:
    return system.slurm.home / "pods-home"


def told(system: SlurmSystem, pod: dict[str, Any]) -> str:
    """What Slurm knows of a pod's job."""
    (number,) = system.numbers(pod)
    return system.slurm.admin("scontrol", "show", "job", number)


# --- annotations ----------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["slurm-job.vk.io", "slurm-job.knoc.io"])
def test_all_annotations(system: SlurmSystem, home: Path, family: str) -> None:
    trace = home / f"trace-{family}"
    (home / "data" / "word").write_text("mounted")
    says = {
        "flags": "--job-name=test-pod-cfg -t 28 --ntasks=2 --nodes=1 --mem-per-cpu=200",
        "pre-exec": f"echo pre-exec $SLURM_NTASKS >>{trace}",
        "singularity-commands": f'echo "commands $SCIENCE" >>{trace}',
        "singularity-mounts": f"--bind {home}/data:/mnt/data:ro",
        "singularity-options": "--env OPTION=given",
        "image-root": "/srv/images/",
    }
    script = 'cat /mnt/data/word; echo " $OPTION"; touch /mnt/data/x 2>/dev/null && echo written'
    pod = system.run(f"{script}; exit 0", says=says, family=family, image="busybox_1.36.sif")
    assert system.end(pod) == (0, "")
    assert system.log(pod) == b"mounted given\n"
    assert trace.read_text() == "pre-exec 2\ncommands /opt/science\n"
    known = told(system, pod)
    for words in (
        f"JobName={job_of(pod)}",
        "Comment=test-pod-cfg",
        "TimeLimit=00:28:00",
        "NumTasks=2",
        "NumNodes=1",
        "MinMemoryCPU=200M",
    ):
        assert words in known


@pytest.mark.parametrize(
    ("says", "words"),
    [
        (
            {"flags": "--nice=5"},
            "policy.forbidden_flags of this pool does not allow the flag --nic",
        ),
        ({"flags": "--nic=5"}, "policy.forbidden_flags of this pool does not allow the flag --nic"),
        ({"flags": "ls"}, "the annotation flags: ls is no flag of sbatch"),
        ({"flags": "--wrap=ls"}, "--wrap cannot be used here: the pod's script is what runs"),
        ({"flavor": "none"}, "fits into no flavor of this pool"),
        ({"enroot-options": "x"}, "the annotation enroot-options means nothing to a Slurm pool"),
        ({"singularity-mounts": "--rw /a"}, "--rw is not understood: only --bind is"),
        ({"singularity-options": "'x"}, "cannot be split into words"),
    ],
)
def test_annotations_that_are_refused(
    system: SlurmSystem, says: dict[str, str], words: str
) -> None:
    with pytest.raises(Answer) as refused:
        system.run("true", says=says)
    assert words in str(refused.value)


def test_the_sites_header_and_footer(system: SlurmSystem, home: Path) -> None:
    """A ticket is renewed for as long as the pod runs, and the footer has the last word."""
    (home / "footer").unlink(missing_ok=True)
    wait = 'until [ $(wc -l </ticket) -ge 5 ]; do sleep 0.1; done; echo "[$SCIENCE]"'
    volume = {"name": "ticket", "hostPath": {"path": f"{home}/ticket", "type": "File"}}
    mounts = [{"name": "ticket", "mountPath": "/ticket"}]
    pod = system.run(wait, volumes=[volume], mounts=mounts)
    assert system.end(pod) == (0, "")
    assert system.log(pod) == b"[]\n"  # what the site loads is for the runtime
    assert (home / "footer").read_text() == "over /opt/science\n"
    assert not (home / "ticket").exists()
    for name in system.slurm.nodes:
        assert not system.slurm.living(name, "ticket")


# --- resources ------------------------------------------------------------------------------------


def test_resources_and_deadline(system: SlurmSystem) -> None:
    limits = {"cpu": "3", "memory": "700Mi"}
    pod = system.run("sleep 30", resources={"limits": limits}, activeDeadlineSeconds=120)
    plain = system.run("sleep 30")
    for one in (pod, plain):
        system.until_running(one)
    for words in ("NumCPUs=3", "MinMemoryNode=700M", "TimeLimit=00:08:00"):  # 120, 2 and 300 s
        assert words in told(system, pod)
    for words in ("NumCPUs=1", "MinMemoryNode=1G", "TimeLimit=00:10:00"):  # the partition's
        assert words in told(system, plain)


def test_the_deadline_of_a_pod(system: SlurmSystem) -> None:
    pod = system.run("sleep 1000", activeDeadlineSeconds=2)
    code, message = system.end(pod)
    assert code != 0
    assert "DeadlineExceeded: " in message


def test_gpus(system: SlurmSystem) -> None:
    limits = {"nvidia.com/gpu": "2"}
    pod = system.run('echo "$CUDA_VISIBLE_DEVICES"', resources={"limits": limits})
    assert system.end(pod) == (0, "")
    assert system.log(pod) == b"0,1\n"
    known = told(system, pod)
    assert "NodeList=n3" in known
    assert "gres/gpu=2" in known


def test_two_nodes(system: SlurmSystem, home: Path) -> None:
    each = f"srun hostname >{home}/nodes"
    pod = system.run('echo "$SLURM_JOB_NUM_NODES"', says={"flags": "--nodes=2", "pre-exec": each})
    assert system.end(pod) == (0, "")
    assert system.log(pod) == b"2\n"
    assert len(set((home / "nodes").read_text().split())) == 2


# --- volumes --------------------------------------------------------------------------------------


def test_host_paths(system: SlurmSystem, home: Path) -> None:
    for name in ("plain", "empty"):
        (home / "data" / name).mkdir()
        os.chown(home / "data" / name, USER_ID, USER_ID)
    (home / "guarded" / "file").write_text("guarded")
    paths = {
        "plain": {"path": f"{home}/data/plain"},
        "empty": {"path": f"{home}/data/empty", "type": ""},
        "made": {"path": f"{home}/data/made/deep", "type": "DirectoryOrCreate"},
        "guarded": {"path": f"{home}/guarded", "type": "Directory"},
    }
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in paths]
    mounts[1]["readOnly"] = True  # type: ignore[assignment]
    script = "for d in plain empty made guarded; do touch /$d/x 2>/dev/null && echo $d; done; cat "
    volumes = [{"name": name, "hostPath": path} for name, path in paths.items()]
    pod = system.run(script + "/guarded/file", volumes=volumes, mounts=mounts)
    assert system.end(pod) == (0, "")
    assert system.log(pod) == b"plain\nmade\nguarded"
    assert (home / "data" / "made" / "deep" / "x").exists()


def test_host_paths_that_are_refused(system: SlurmSystem, home: Path) -> None:
    mounts = [{"name": "v", "mountPath": "/v"}]
    for path in ("/etc", f"{home}/data/../guarded2", "/"):
        volumes = [{"name": "v", "hostPath": {"path": path}}]
        with pytest.raises(Answer, match="hostPath"):
            system.run("true", volumes=volumes, mounts=mounts)
    volumes = [{"name": "v", "hostPath": {"path": f"{home}/data/none", "type": "Directory"}}]
    pod = system.run("true", volumes=volumes, mounts=mounts)
    code, message = system.end(pod)
    assert code != 0
    assert f"{home}/data/none" in message
