"""From a pod to a job: totals, defaults, refusals, and what lies in which file."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from templates.common.errors import PodRejected
from templates.job.model import Job, split_script
from templates.pod.create_request import read_create_request
from templates.pod.user_manifests import read_manifests
from templates.site.build_config import (
    KUBERNETES,
    ON_THE_NODE,
    RUNTIMES,
    BuildConfig,
    PodResources,
    Rules,
    Runtime,
)
from templates.translation.build import build
from tests.bench.create_request import body

REPO = Path(__file__).resolve().parents[4]
SECRET = "correct-horse-battery"
CONFIG = BuildConfig(rules=Rules(annotations=("*", *ON_THE_NODE)))
ALLOWING = replace(CONFIG, rules=Rules(privileged=True))


def job_of(
    *containers: dict[str, Any],
    config: BuildConfig = CONFIG,
    annotations: Any = None,
    more: Any = None,
    **spec: Any,
) -> Job:
    """The job of a pod of containers that need only what the test is about."""
    usual = {"image": "busybox:1.36", "command": ["true"]}
    named = [{"name": f"c{i}", **usual, **c} for i, c in enumerate(containers or ({},))]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train", "annotations": annotations or {}},
        "spec": {"restartPolicy": "Never", "containers": named, **spec},
    }
    texts = [json.dumps(document) for document in (pod, *(more or ()))]
    return build(read_manifests([("pod.json", "\n---\n".join(texts))]), config)


def asking(**amounts: str) -> dict[str, Any]:
    return {"resources": {"requests": amounts}}


def limited(**amounts: str) -> dict[str, Any]:
    return {"resources": {"limits": amounts}}


def refusal(*containers: dict[str, Any], **more: Any) -> str:
    with pytest.raises(PodRejected) as caught:
        job_of(*containers, **more)
    return str(caught.value)


def test_a_job_asks_for_what_its_containers_ask_together() -> None:
    job = job_of(
        asking(cpu="500m", memory="1Gi"),
        asking(cpu="2", memory="512Mi"),
        initContainers=[{"name": "i", "image": "x", "command": ["x"], **asking(cpu="1")}],
    )
    assert job.cpu_milli == 2500
    assert job.memory_bytes == 1536 * 2**20
    assert job.gpus == {}
    assert job.other_resources == {}


def test_a_pod_that_asks_for_nothing_gets_what_the_site_gives() -> None:
    assert (job_of().cpu_milli, job_of().memory_bytes) == (1000, 2**30)
    config = replace(CONFIG, defaults=PodResources(cpu="250m", memory="256Mi", wall_time_s=3600))
    job = job_of(config=config)
    assert (job.cpu_milli, job.memory_bytes, job.wall_time_s) == (250, 256 * 2**20, 3600)


def test_a_site_without_defaults_asks_for_nothing() -> None:
    job = job_of(config=replace(CONFIG, defaults=PodResources()))
    assert (job.cpu_milli, job.memory_bytes, job.wall_time_s) == (0, 0, None)


def test_a_job_has_memory_for_its_script_and_runtime_whatever_its_pod_asks_for() -> None:
    little = asking(memory="32Mi")
    assert job_of(little).memory_bytes == 128 * 2**20
    config = replace(CONFIG, runtime=Runtime(least_memory="0"), limits=PodResources(memory="32Mi"))
    assert job_of(little, config=config).memory_bytes == 32 * 2**20
    config = replace(config, runtime=Runtime(least_memory="1Gi"))
    assert job_of(little, config=config).memory_bytes == 2**30  # the site's own word: no pod's


def test_memory_is_asked_for_up_to_the_limits() -> None:
    both = {"resources": {"requests": {"memory": "1Gi"}, "limits": {"memory": "4Gi"}}}
    assert job_of(both).memory_bytes == 4 * 2**30
    assert job_of(both, both).memory_bytes == 8 * 2**30
    assert job_of(both, asking(memory="1Gi")).memory_bytes == 2 * 2**30  # one has no limit


def test_the_deadline_of_a_pod_is_its_wall_time() -> None:
    config = replace(CONFIG, defaults=PodResources(wall_time_s=3600))
    assert job_of(config=config, activeDeadlineSeconds=60).wall_time_s == 60
    assert "DEADLINE=60\n" in job_of(activeDeadlineSeconds=60).script
    assert "DEADLINE=" not in job_of(config=config).script.partition("\n\n# ----")[0]


def test_gpus_and_other_resources_are_counted_by_name() -> None:
    job = job_of(
        limited(**{"nvidia.com/gpu": "2", "example.org/nic": "1"}),
        limited(**{"nvidia.com/gpu": "1", "amd.com/gpu": "1"}),
    )
    assert job.gpus == {"nvidia.com/gpu": 3, "amd.com/gpu": 1}
    assert job.other_resources == {"example.org/nic": "1"}


@pytest.mark.parametrize(
    ("limits", "containers", "spec", "words"),
    [
        (
            PodResources(cpu="2"),
            [asking(cpu="1500m")] * 2,
            {},
            "3 cpus are more than this site's 2",
        ),
        (
            PodResources(memory="1Gi"),
            [limited(memory="2Gi")],
            {},
            "2147483648 bytes of memory are more than this site's 1Gi",
        ),
        (
            PodResources(gpus=1),
            [limited(**{"nvidia.com/gpu": "2"})],
            {},
            "2 GPUs are more than this site's 1",
        ),
        (
            PodResources(gpus=0),
            [limited(**{"amd.com/gpu": "1"})],
            {},
            "1 GPUs are more than this site's 0",
        ),
    ],
)
def test_more_than_a_site_has_is_refused(
    limits: PodResources, containers: list[dict[str, Any]], spec: dict[str, Any], words: str
) -> None:
    config = replace(CONFIG, limits=limits)
    assert refusal(*containers, config=config, **spec) == f"pod.spec.containers: {words}"
    assert job_of(asking(cpu="1", memory="1Mi"), config=config).cpu_milli == 1000


def test_a_longer_deadline_than_a_site_allows_is_refused() -> None:
    config = replace(CONFIG, limits=PodResources(wall_time_s=100))
    assert job_of(config=config, activeDeadlineSeconds=100).wall_time_s == 100
    assert refusal(config=config, activeDeadlineSeconds=101) == (
        "pod.spec.activeDeadlineSeconds: 101 s are more than this site's 100"
    )


@pytest.mark.parametrize(
    ("context", "field"),
    [
        ({"privileged": True}, "privileged"),
        ({"capabilities": {"add": ["SYS_ADMIN"]}}, "capabilities.add"),
    ],
)
def test_more_rights_need_the_consent_of_the_site(context: dict[str, Any], field: str) -> None:
    container = {"securityContext": context}
    assert refusal({}, container) == (
        f"pod.spec containers[c1].securityContext.{field}: this site does not allow it"
    )
    assert job_of({}, container, config=ALLOWING).name.startswith("train-")


@pytest.mark.parametrize("field", ["hostPID", "hostIPC"])
def test_name_spaces_of_the_host_need_the_consent_of_the_site(field: str) -> None:
    assert refusal(**{field: True}) == f"pod.spec.{field}: this site does not allow it"
    assert job_of(config=ALLOWING, **{field: True}).name.startswith("train-")


def test_fewer_rights_are_never_refused() -> None:
    context = {"capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True}
    assert job_of({"securityContext": {**context, "privileged": False}}, hostNetwork=True)


def test_annotations_for_the_backend_are_handed_on() -> None:
    annotations = {
        "slurm-job.vk.io/flags": "--time=10",
        "job.vk.io/flags": "--time=20",
        "slurm-job.vk.io/pre-exec": "true",
        "example.org/note": "x",
    }
    assert job_of(annotations=annotations).annotations == {"flags": "--time=20"}


def test_a_job_lists_its_containers_in_the_order_of_their_start() -> None:
    inits = [{"name": "first", "image": "x", "command": ["x"]}]
    inits.append({"name": "side", "image": "y", "command": ["x"], "restartPolicy": "Always"})
    assert job_of({}, {}, initContainers=inits).containers == (
        ("first", "init", "x"),
        ("side", "sidecar", "y"),
        ("c0", "main", "busybox:1.36"),
        ("c1", "main", "busybox:1.36"),
    )


def with_everything(runtime: str) -> Job:
    """A pod with a secret in every place that can hold one."""
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in ("sec", "map", "proj")]
    probe = {"exec": {"command": ["check", SECRET]}}
    container = {
        "args": [SECRET],
        "env": [{"name": "A", "value": SECRET}],
        "volumeMounts": mounts,
        "readinessProbe": probe,
        "lifecycle": {"preStop": probe},
    }
    docker = {"auths": {"docker.io": {"username": "me", "password": SECRET}}}
    pull = {
        "kind": "Secret",
        "metadata": {"name": "pull"},
        "stringData": {".dockerconfigjson": json.dumps(docker)},
    }
    objects = [
        {"kind": "Secret", "metadata": {"name": "s"}, "stringData": {"pw": SECRET}},
        {"kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "public"}},
        pull,
    ]
    volumes = [
        {"name": "sec", "secret": {"secretName": "s", "defaultMode": 0o440}},
        {"name": "map", "configMap": {"name": "m"}},
        {"name": "proj", "projected": {"sources": [{"secret": {"name": "s"}}]}},
    ]
    return job_of(
        container,
        config=replace(CONFIG, runtime=Runtime(name=runtime)),
        annotations={
            "job.vk.io/pre-exec": f"login {SECRET}",
            "job.vk.io/singularity-commands": f"export A={SECRET}",
            "interlink.eu/wstunnel-client-commands": f"tunnel {SECRET}",
        },
        more=objects,
        volumes=volumes,
        imagePullSecrets=[{"name": "pull"}],
        hostAliases=[{"ip": "10.1.2.3", "hostnames": ["db", "db.local"]}],
    )


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_nothing_secret_is_outside_the_secret_files(runtime: str) -> None:
    job = with_everything(runtime)
    assert SECRET not in job.script
    for file in job.files:
        assert file.secret == file.path.startswith("secret/"), file.path
        assert file.secret or SECRET.encode() not in file.content, file.path
    holding = {file.path for file in job.files if SECRET.encode() in file.content}
    wanted = {"pod.sh", "pre-exec.sh", "container-commands.sh", "tunnel.sh"}
    wanted |= {"volumes/sec/pw", "volumes/proj/pw"}
    wanted |= {"login-0"} if runtime != "host" else set()
    wanted |= {"apptainer": {"env-0.sh"}, "singularity": {"env-0.sh"}, "podman": {"env-0"}}.get(
        runtime, set()
    )
    assert holding == {f"secret/{name}" for name in wanted}


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_files_have_the_modes_that_the_pod_gives_and_else_are_private(runtime: str) -> None:
    modes = {file.path: file.mode for file in with_everything(runtime).files}
    assert modes.pop("secret/volumes/sec/pw") == 0o440
    assert modes.pop("secret/volumes/proj/pw") == 0o644
    assert modes.pop("volumes/map/a") == 0o644
    assert modes.pop("hosts") == 0o644
    assert set(modes.values()) == {0o600}


def test_no_two_files_have_the_same_path() -> None:
    for runtime in RUNTIMES:
        paths = [file.path for file in with_everything(runtime).files]
        assert len(paths) == len(set(paths))
        assert not any(path.startswith("/") or ".." in path.split("/") for path in paths)


@pytest.mark.parametrize("runtime", ["apptainer", "singularity"])
def test_a_gpu_that_the_runtime_has_no_way_to_hand_over_is_refused(runtime: str) -> None:
    container = limited(**{"gpu.intel.com/i915": "1"})
    config = replace(CONFIG, runtime=Runtime(name=runtime))
    assert refusal(container, config=config) == (
        "pod.spec containers[c0].resources: "
        f"{runtime} cannot hand gpu.intel.com/i915 to a container"
    )
    own_way = replace(config, runtime=Runtime(name=runtime, gpu="never"))
    assert job_of(container, config=own_way).gpus == {"gpu.intel.com/i915": 1}


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_script_of_a_hello_pod_is_small(runtime: str) -> None:
    text = (REPO / "tests" / "data" / "pods" / "hello.yaml").read_text(encoding="utf-8")
    pod = read_manifests([("hello.yaml", text)])
    script = build(pod, BuildConfig(runtime=Runtime(name=runtime))).script
    assert len(script.encode()) < 18 * 1024


def test_the_host_runtime_needs_a_command() -> None:
    assert refusal({"command": None}) == (
        "pod.spec containers[c0].command: must be given: the host runtime has no images"
    )
    assert job_of({"command": None}, config=BuildConfig(runtime=Runtime(name="podman")))


def test_the_same_pod_gives_the_same_job() -> None:
    assert build(read_create_request(body()), BuildConfig()) == build(
        read_create_request(body()), BuildConfig()
    )


def test_a_job_does_not_depend_on_the_order_in_which_python_keeps_sets() -> None:
    program = (
        "import sys; from tests.unit.templates.translation.test_build import with_everything\n"
        "for name in sys.argv[1:]: print(with_everything(name))"
    )
    jobs = {
        subprocess.run(
            [sys.executable, "-c", program, *RUNTIMES],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(REPO)},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(jobs) == 1
    assert SECRET.encode() in jobs.pop()


@pytest.mark.parametrize("name", ["hello.yaml", "everything.yaml"])
def test_singularity_gets_the_scripts_of_apptainer_under_its_own_name(name: str) -> None:
    path = REPO / "tests" / "data" / "pods" / name
    pod = read_manifests([(path.name, path.read_text())])
    jobs = [build(pod, BuildConfig(runtime=Runtime(name=r))) for r in ("apptainer", "singularity")]
    new, old = (job._replace(runtime="") for job in jobs)
    assert new.script.count("RUNTIME=apptainer ") == 1
    renamed = new.script.replace("RUNTIME=apptainer ", "RUNTIME=singularity ")
    renamed = re.sub(r"\bAPPTAINER(?=ENV_|_CACHEDIR|_TMPDIR)", "SINGULARITY", renamed)
    both = 'APPTAINER_CONFIGDIR="$RUN/runtime"'
    also = f"{both} {both.replace('APPTAINER', 'SINGULARITY')}"
    assert new._replace(script=renamed.replace(both, also)) == old


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_functions_of_scripts_are_the_same_to_the_byte(runtime: str) -> None:
    """So that they travel once in a message."""
    config = BuildConfig(runtime=Runtime(name=runtime))
    one, two = (job_of({"image": image}, config=config).script for image in ("one:1", "two:2"))
    assert "".join(split_script(one)) == one != two
    assert split_script(one)[1] == split_script(two)[1]
    assert len(split_script(one)[1]) > len(split_script(one)[0]) or runtime == KUBERNETES
