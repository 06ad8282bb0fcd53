"""From a job to #SBATCH lines: what wins over what, which flavor it gets, what is refused."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from submitter.backends.slurm.options import load
from submitter.backends.slurm.request import build_script
from submitter.common.errors import Forbidden
from submitter.config.settings import Policy, Pool
from templates.common.errors import ConfigError
from templates.job.model import Job
from templates.site.build_config import BuildConfig, Script
from tests.unit.submitter.rig import job_of

FLAVORS = [
    {"name": "gpu", "partition": "g", "min_gpus": 1, "max_gpus": 4},
    {"name": "short", "partition": "s", "max_wall_time_s": 3600, "max_cpu": "8"},
    {"name": "long", "partition": "l", "max_memory": "64Gi", "max_gpus": 0, "flags": ["--mem=9G"]},
]


def asked(flags: str = "", pool: Any = None, job: Any = None, **options: Any) -> dict[str, str]:
    """The options in the script that sbatch gets."""
    made: Job = job_of()._replace(annotations={"flags": flags} if flags else {}, **(job or {}))
    where = Pool(name="p", directory="/shared/p", **(pool or {}))
    text = build_script(made, f"/shared/p/jobs/{made.name}", where, load(options, "p"))
    head = [line[len("#SBATCH ") :] for line in text.splitlines() if line.startswith("#SBATCH ")]
    # Slurm takes a backslash as bash does within double quotes, before quotes and backslashes.
    words = [shlex.split(line.replace("$", "\\$")) for line in head]
    assert all(len(word) == 1 for word in words)
    found = dict(word[0][2:].replace("\\$", "$").partition("=")[::2] for word in words)
    assert len(found) == len(head)
    return found


def test_what_follows_from_the_pod() -> None:
    job = {"cpu_milli": 1500, "memory_bytes": 300 * 2**20 + 1, "gpus": {"nvidia.com/gpu": 2}}
    found = asked(job={**job, "wall_time_s": 600})
    assert found["cpus-per-task"] == "2"
    assert found["mem"] == "301M"
    assert found["gres"] == "gpu:2"
    assert found["time"] == "16"  # 600 s, 3 s of grace, the margin of 300 s
    assert found["signal"] == "B:TERM@60"
    assert (found["nodes"], found["ntasks"]) == ("1", "1")
    assert "no-requeue" in found
    assert asked(job=job, gpu_flag="gpus", gres={"nvidia.com/gpu": "gpu:a100"})["gpus"] == "a100:2"
    again = asked(pool={"build": BuildConfig(script=Script(rerun=True))})
    assert "requeue" in again
    assert "no-requeue" not in again


def test_the_pods_flags_win() -> None:
    found = asked("--job-name=mine -t 2800 --ntasks=8 --nodes=1 --mem-per-cpu=2000")
    assert found["comment"] == "mine"
    assert found["job-name"].startswith("job-")
    assert (found["time"], found["ntasks"], found["mem-per-cpu"]) == ("2800", "8", "2000")
    assert "mem" not in found
    gpus = {"gpus": {"nvidia.com/gpu": 2}}
    assert "gres" not in asked("--gpus=a100:2", job=gpus)
    assert asked("--gres=gpu:h100:1", job=gpus)["gres"] == "gpu:h100:1"
    assert asked("--gres=shard:3", job=gpus)["gres"] == "gpu:2,shard:3"
    assert asked("--gres=none", job=gpus)["gres"] == "none"
    assert asked("-n4 -n 5")["ntasks"] == "5"
    assert asked("--part=x")["partition"] == "x"
    assert asked("""--comment='a "b" \\ $c # d'""")["comment"] == 'a "b" \\ $c # d'


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--array=1-3", "--array cannot be used here: a pod is one job"),
        ("--wrap=ls", "--wrap cannot be used here"),
        ("--uid=0", "jobs run as the user that submits them"),
        ("--export=ALL", "a pod's environment is its own"),
        ("-M other", "the pool is one cluster"),
        ("--requeue", "this site runs no job a second time"),
        ("ls", "ls is no flag of sbatch"),
        ("-y", "-y is no flag of sbatch"),
        ("--time", "nothing follows --time"),
        ("--time=soon", "--time=soon is no time limit"),
        ("--hold=1", "--hold takes no value"),
        ("--mem='1", "cannot be split into words"),
        ("--gpus-per=1", "could be --gpus-per-node, --gpus-per-socket, --gpus-per-task"),
        ("--comment='a\nb'", "holds a character that cannot be printed"),
        (f"--comment={'x' * 1001}", "is longer than 1000 characters"),
        ("--a;b=1", "is no flag of sbatch"),
    ],
)
def test_flags_that_are_refused(flags: str, words: str) -> None:
    with pytest.raises(Forbidden) as caught:
        asked(flags)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_annotations_mean_something() -> None:
    other = {"annotations": {"condor/requirements": "x", "flags": "-n 2"}}
    made = job_of()._replace(**other)
    where = Pool(name="p", directory="/shared/p")
    assert "--ntasks=2\n" in build_script(made, "/d", where, load({}, "p"))
    for name in ("enroot-options", "flag"):
        with pytest.raises(Forbidden, match=f"annotation {name} means nothing to a Slurm pool"):
            build_script(made._replace(annotations={name: "x"}), "/d", where, load({}, "p"))


def test_the_policy_holds_for_what_flags_ask_for() -> None:
    pool = {"policy": Policy(memory="4Gi", cpu="4", gpus=1, wall_time_s=3600)}
    for flags in ("--mem=8G", "-n 8", "--gres=gpu:2", "--time=2-0", "--mem-per-cpu=5G"):
        with pytest.raises(Forbidden, match="policy"):
            asked(flags, pool)
    assert asked("--mem=4G -n 4", pool)["ntasks"] == "4"


def test_the_first_flavor_that_fits() -> None:
    gpu = {"gpus": {"nvidia.com/gpu": 1}}
    assert asked(job=gpu, flavors=FLAVORS)["partition"] == "g"
    found = asked(flavors=FLAVORS)
    assert (found["partition"], found["time"]) == ("s", "60")
    found = asked(job={"wall_time_s": 7200}, flavors=FLAVORS)
    assert (found["partition"], found["mem"]) == ("l", "9G")
    assert asked("-p l", flavors=FLAVORS)["partition"] == "l"
    made = job_of()._replace(annotations={"flavor": "long"})
    text = build_script(made, "/d", Pool(name="p", directory="/x"), load({"flavors": FLAVORS}, "p"))
    assert "--partition=l\n" in text


def test_no_flavor_fits() -> None:
    with pytest.raises(Forbidden) as caught:
        asked("-n 9", job={"gpus": {"nvidia.com/gpu": 5}}, flavors=FLAVORS)
    assert str(caught.value) == (
        "fits into no flavor of this pool: gpu gives at most 4 GPUs; "
        "short gives at most 8 cores; long gives at most 0 GPUs"
    )


def test_resources_that_have_no_name_in_slurm() -> None:
    with pytest.raises(Forbidden, match=r"asks for amd\.com/gpu"):
        asked(job={"gpus": {"amd.com/gpu": 1}})
    with pytest.raises(Forbidden, match=r"asks for example\.com/fpga"):
        asked(job={"other_resources": {"example.com/fpga": "1"}})
    gres = {"example.com/fpga": "fpga", "nvidia.com/gpu": "gpu"}
    job = {"other_resources": {"example.com/fpga": "1"}, "gpus": {"nvidia.com/gpu": 1}}
    assert asked("--gpus=1", job=job, gres=gres)["gres"] == "fpga:1"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"flavours": []}, "flavours: unknown key (did you mean flavors?)"),
        ({"flavors": [{"name": "a"}, {"name": "a"}]}, "flavors[1].name: is that of another"),
        ({"capacity": "some"}, "capacity: must be one of total, free"),
        ({"timeout_s": 0}, "timeout_s: must be from 1"),
        ({"export": ["A=1"]}, "export: A=1 is no name of a variable"),
        ({"flags": ["--uid=0"]}, "flags: --uid cannot be used here"),
        ({"flavors": [{"name": "a", "flags": ["x"]}]}, "flavors[0].flags: x is no flag of sbatch"),
    ],
)
def test_mistakes_in_the_options(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(options, "p")
    assert words in str(caught.value)
