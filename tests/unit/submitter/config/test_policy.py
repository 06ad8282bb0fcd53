"""Each rule of a site's policy, and ways around it that hostile pods would try."""

from __future__ import annotations

from typing import Any

import pytest

from submitter.common.errors import Forbidden
from submitter.config import policy as site_policy
from submitter.config.settings import Policy, Pool
from templates.common.quoting import quote
from templates.job.model import Job

UID = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"


def job(**changed: Any) -> Job:
    made = Job(
        name=f"hello-{UID}",
        uid=UID,
        namespace="team-a",
        pod="hello",
        runtime="apptainer",
        script="",
        files=(),
        cpu_milli=2000,
        memory_bytes=1024**3,
        gpus={},
        wall_time_s=None,
        other_resources={},
        annotations={},
        containers=(("main", "main", "registry.example.org/a/b:1"),),
        grace_period_s=30,
        host_paths=(),
        privileged=False,
        images=("docker://registry.example.org/a/b:1",),
    )._replace(**changed)
    lines = [f"    name=c{i} kind=main image={quote(name)}\n" for i, name in enumerate(made.images)]
    return made._replace(script="".join(lines))


def check(made: Job, policy: Policy) -> None:
    site_policy.check(made, Pool(name="p", directory="/p", policy=policy))


def images(*names: str) -> dict[str, Any]:
    return {"images": names}


def flags(value: str, key: str = "flags") -> dict[str, Any]:
    return {"annotations": {key: value}}


def refusal(made: Job, policy: Policy) -> str:
    with pytest.raises(Forbidden) as caught:
        check(made, policy)
    line = str(caught.value)
    assert "\n" not in line
    assert len(line) < 300
    return line


def test_the_default_lets_an_ordinary_pod_in() -> None:
    check(job(gpus={"nvidia.com/gpu": 8}, wall_time_s=10**6), Policy())


OURS = Policy(images=("registry.example.org/*", "/cvmfs/*"))
PATHS = Policy(host_paths=("/data", "/cvmfs/some.repo"))
FLAGGED = Policy(forbidden_flags=("--uid", "--chdir", "-D", "--export-file", "--time-min"))


@pytest.mark.parametrize(
    ("changed", "policy", "line"),
    [
        (
            images("registry.example.org/ok", "docker.io/evil:1"),
            OURS,
            "policy.images of this pool does not allow docker.io/evil:1",
        ),
        (images(""), OURS, "policy.images of this pool does not allow a container without"),
        (
            {"namespace": "team-b"},
            Policy(namespaces=("team-a", "lab-*")),
            "policy.namespaces of this pool does not allow pods of namespace team-b",
        ),
        (
            {"runtime": "host"},
            Policy(runtimes=("apptainer", "singularity")),
            "policy.runtimes of this pool does not allow scripts for runtime host",
        ),
        (
            flags("-n 4"),
            Policy(annotations=("mpi-*",)),
            "policy.annotations of this pool does not allow the annotation flags",
        ),
        (
            flags("-n 4"),
            Policy(forbidden_annotations=("fl*",)),
            "policy.forbidden_annotations of this pool does not allow the annotation flags",
        ),
        (
            flags("--uid=0"),
            FLAGGED,
            "policy.forbidden_flags of this pool does not allow the flag --uid (--uid=0)",
        ),
        (
            {"host_paths": ("/data/x", "/etc")},
            PATHS,
            "policy.host_paths of this pool does not allow /etc",
        ),
        (
            {"host_paths": ("/data",)},
            Policy(),
            "policy.host_paths of this pool does not allow /data",
        ),
        ({"privileged": True}, Policy(), "policy.privileged of this pool does not allow"),
        (
            {"cpu_milli": 2001},
            Policy(cpu="2"),
            "policy.cpu of this pool does not allow 2.001 cores: the most is 2",
        ),
        (
            {"memory_bytes": 1024**3 + 1},
            Policy(memory="1Gi"),
            "policy.memory of this pool does not allow 1073741825 bytes: the most is 1Gi",
        ),
        (
            {"gpus": {"nvidia.com/gpu": 1, "amd.com/gpu": 1}},
            Policy(gpus=1),
            "policy.gpus of this pool does not allow 2 GPUs: the most is 1",
        ),
        (
            {"wall_time_s": 61},
            Policy(wall_time_s=60),
            "policy.wall_time_s of this pool does not allow 61 s: the most is 60",
        ),
    ],
)
def test_each_rule_refuses_in_one_line_that_names_it(
    changed: dict[str, Any], policy: Policy, line: str
) -> None:
    assert refusal(job(**changed), policy).startswith(line)


@pytest.mark.parametrize(
    ("changed", "policy"),
    [
        (images("registry.example.org/a", "/cvmfs/x/y.sif"), OURS),
        (images("anything", "../images/x.sif"), Policy()),
        ({"host_paths": ("/data", "/data/", "//data/./x", "/cvmfs/some.repo/x")}, PATHS),
        ({"host_paths": ("/etc", "/")}, Policy(host_paths=("/",))),
        ({"privileged": True}, Policy(privileged=True)),
        ({"cpu_milli": 2000}, Policy(cpu="2")),
        ({"memory_bytes": 1024**3}, Policy(memory="1Gi")),
        ({"gpus": {"a/gpu": 1}}, Policy(gpus=1)),
        ({}, Policy(gpus=0, wall_time_s=1)),
        ({"wall_time_s": 60}, Policy(wall_time_s=60)),
        (flags("x"), Policy(annotations=("flags",))),
        (flags("x", "condor/flags"), Policy(annotations=("flags",))),
        (flags("x", "condor/flags"), Policy(annotations=("condor/*",))),
        (flags("'unbalanced"), Policy()),
        (flags("--uid=0", "other-flags"), FLAGGED),
    ],
)
def test_what_is_allowed_passes(changed: dict[str, Any], policy: Policy) -> None:
    check(job(**changed), policy)


@pytest.mark.parametrize(
    "image",
    [
        "Registry.example.org/a",
        "registry.example.org",
        "registry.example.org.evil.org/a",
        "evil.org/registry.example.org/a",
        " registry.example.org/a",
        "registry.example.org\n/a",
        "/cvmfs/../home/evil.sif",
        "/cvmfs/x/../../home/evil.sif",
        "registry.example.org/../evil",
        "evil\nregistry.example.org/a",
        "x" * 100_000,
    ],
)
def test_images_that_only_look_allowed_are_refused(image: str) -> None:
    assert refusal(job(**images(image)), OURS).startswith("policy.images")


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/dat",
        "/database",
        "/data/../etc",
        "/data/..",
        "/../data",
        "data",
        "./data",
        "",
        "/data\0/../etc",
        "/cvmfs",
        "/cvmfs/some.repo.evil",
        "/cvmfs/some",
        "/DATA",
        "None",
    ],
)
def test_paths_that_only_look_allowed_are_refused(path: str) -> None:
    assert refusal(job(host_paths=(path,)), PATHS).startswith("policy.host_paths")


@pytest.mark.parametrize(
    "value",
    [
        "--uid 0",
        "--uid=0",
        "-n 4 --uid=0",
        "'--uid=0'",
        '--u"i"d=0',
        "--u\\id 0",
        "--ui=0",
        "--u 0",
        "-n 4\n--uid=0",
        "--comment --uid",
        "-D /tmp",
        "-D/tmp",
        "-QD /tmp",
        "-HQD/tmp",
        "--chd=/tmp",
        "--export-f=3",
        "--time-m=1",
        "'unbalanced --uid=0",
        "x\\",
    ],
)
@pytest.mark.parametrize("key", ["flags", "condor/flags"])
def test_forbidden_flags_are_found_however_they_are_written(value: str, key: str) -> None:
    assert refusal(job(**flags(value, key)), FLAGGED).startswith("policy.forbidden_flags")


@pytest.mark.parametrize(
    "value",
    [
        "",
        "--time=10 --export=ALL --mem=4G",
        "-pDEBUG",
        "-Q",
        "-",
        "--",
        "--comment=-D",
        "--uidx=1",
        "--Uid=1",
        "-d afterok:1",
        "uid",
    ],
)
def test_other_flags_pass(value: str) -> None:
    check(job(**flags(value)), FLAGGED)


def test_a_word_can_be_forbidden_that_is_no_option() -> None:
    policy = Policy(forbidden_flags=("evil.sh", "-foo"))
    assert "evil.sh" in refusal(job(**flags("-n 1 evil.sh")), policy)
    assert "-foo" in refusal(job(**flags("-foo")), policy)
    check(job(**flags("evil.sh.not -foox")), policy)
