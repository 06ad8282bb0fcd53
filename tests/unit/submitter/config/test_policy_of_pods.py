"""A site's policy and real translations: every way in which a pod can ask for what is forbidden.

A plugin has translated each pod by a BuildConfig that allows everything; the site's policy is all
that is left to refuse it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from submitter.common.errors import Forbidden
from submitter.config import policy as site_policy
from submitter.config.settings import Policy, Pool
from templates.common.errors import PodRejected
from templates.job.model import MANIFESTS, File, Job
from templates.pod.user_manifests import read_manifests
from templates.site.build_config import (
    KUBERNETES,
    ON_THE_NODE,
    RUNTIMES,
    BuildConfig,
    Claim,
    HostPath,
    Images,
    KubernetesRuntime,
    NfsExport,
    PodmanRuntime,
    Rules,
    Runtime,
    Volumes,
)
from templates.translation.build import build

pytestmark = pytest.mark.security

UID = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
EVERYWHERE = (*RUNTIMES, KUBERNETES)
CONTAINERS = ("apptainer", "singularity", "podman")
FAMILIES = ("slurm-job.vk.io/", "slurm-job.knoc.io/", "job.vk.io/")
ALL_RULES = Rules(privileged=True, annotations=("*", *ON_THE_NODE))
VOLUMES = Volumes(
    host_paths=(HostPath("/"),),
    claims={"data": Claim("/claims/$namespace/$claim"), "home": Claim("/claims/home")},
    nfs=(NfsExport("nfs.example.org", "/export", "/mnt/nfs"),),
)
OPEN = Policy(images=("*", "/*", "oci*", "docker-archive:*"), host_paths=("/",), privileged=True)


def config_of(runtime: str, **changed: Any) -> BuildConfig:
    """A site's configuration that allows everything."""
    made = BuildConfig(
        runtime=Runtime(name=runtime),
        podman=PodmanRuntime(network="pasta"),
        volumes=VOLUMES,
        kubernetes=KubernetesRuntime(claims={"data": "far", "home": "away"}),
        rules=ALL_RULES,
    )
    return replace(made, **changed)


def pod_of(annotations: Any = None, container: Any = None, **spec: Any) -> dict[str, Any]:
    usual = {"name": "main", "image": "python:3", "command": ["true"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train", "uid": UID, "annotations": annotations or {}},
        "spec": {"restartPolicy": "Never", "containers": [{**usual, **(container or {})}], **spec},
    }


def job_of(pod: dict[str, Any], config: BuildConfig) -> Job:
    return build(read_manifests([("pod.json", json.dumps(pod))]), config)


def check(job: Job, policy: Policy, build_config: BuildConfig) -> None:
    site_policy.check(job, Pool(name="p", directory="/p", policy=policy, build=build_config))


def refusal(job: Job, policy: Policy, build_config: BuildConfig) -> str:
    with pytest.raises(Forbidden) as caught:
        check(job, policy, build_config)
    line = str(caught.value)
    assert "\n" not in line
    return line


def assert_only_refused_by(
    pod: dict[str, Any], policy: Policy, rule: str, config: BuildConfig
) -> None:
    """The pod is one that a plugin translates, and that a site without this policy would take."""
    try:
        job = job_of(pod, config)
    except PodRejected:
        assert config.runtime.name in (KUBERNETES, "podman"), "others take them all"
        return
    check(job, OPEN, config)
    assert refusal(job, policy, config).startswith(rule)


# --- annotations ----------------------------------------------------------------------------------

VALUES = {
    "pre-exec": "touch /tmp/x",
    "singularity-commands": "touch /tmp/x",
    "singularity-mounts": "--bind /data:/x",
    "singularity-options": "--nv",
    "mpi-flags": "sh -c id",
    "image-root": "docker://r.example.org/",
    "flags": "--time=10",
    "flavor": "big",
    "no-such-thing": "x",
}
ANNOTATIONS = [
    *[(family + name, value) for family in FAMILIES for name, value in VALUES.items()],
    ("htcondor-job.vk.io/requirements", "true"),
    ("condor-job.vk.io/singularity-options", "--nv"),
    ("htcondor-job.knoc.io/image-root", "docker://r.example.org/"),
    ("interlink.eu/wstunnel-client-commands", "wstunnel &"),
]


@pytest.mark.parametrize("runtime", EVERYWHERE)
@pytest.mark.parametrize(("annotation", "value"), ANNOTATIONS)
def test_no_annotation_passes_a_policy_that_does_not_allow_it(
    runtime: str, annotation: str, value: str
) -> None:
    name = annotation.partition("/")[2]
    for policy, rule in (
        (replace(OPEN, annotations=()), "policy.annotations"),
        (replace(OPEN, annotations=("other", "[!x]x*")), "policy.annotations"),
        (replace(OPEN, forbidden_annotations=(name,)), "policy.forbidden_annotations"),
        (replace(OPEN, forbidden_annotations=(f"{name[:3]}*",)), "policy.forbidden_annotations"),
        (replace(OPEN, forbidden_annotations=("*",)), "policy.forbidden_annotations"),
    ):
        for written in (value, ""):
            pod = pod_of({annotation: written})
            assert_only_refused_by(pod, policy, rule, config_of(runtime))


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("patterns", [(), ("*",), ("*", "**", "[!x]*")])
@pytest.mark.parametrize("name", ON_THE_NODE)
def test_what_runs_on_the_node_needs_the_word_of_the_sites_own_build_config(
    runtime: str, patterns: tuple[str, ...], name: str
) -> None:
    """A plugin may have translated by another one: an older plugin takes * for all of them."""
    family = "interlink.eu/" if name.startswith("wstunnel") else FAMILIES[0]
    job = job_of(pod_of({family + name: VALUES.get(name, "x")}), config_of(runtime))
    site = config_of(runtime, rules=Rules(annotations=patterns))
    assert refusal(job, OPEN, site) == (
        f"build.rules.annotations of this pool does not allow the annotation {name},"
        " which it does not name"
    )
    check(job, OPEN, replace(site, rules=Rules(annotations=(*patterns, name))))


# --- images ---------------------------------------------------------------------------------------

OURS = Policy(images=("library/*", "registry.example.org/*"))


@pytest.mark.parametrize("runtime", EVERYWHERE)
@pytest.mark.parametrize(
    ("image", "root", "images"),
    [
        ("evil/python:3", "", Images()),
        ("docker.io/evil/python:3", "", Images()),
        ("docker://evil/python:3", "", Images()),
        ("docker.io/registry.example.org/x", "", Images()),
        ("registry.example.org.evil.org/x", "", Images()),
        ("registry.example.org:80/x", "", Images()),
        ("library/python", "docker://registry.evil.org/", Images()),
        ("library/python", "registry.evil.org/", Images()),
        ("registry.example.org/x", "registry.evil.org/", Images()),
        ("library/python", "/home/evil/", Images()),
        ("library/python", "oras://registry.evil.org/", Images()),
        ("library/python", "", Images(root="docker://registry.evil.org/")),
        ("library/python", "", Images(root="/home/evil")),
        ("library/python", "", Images(prefix="registry.evil.org/")),
        ("/home/evil.sif", "", Images()),
        ("/", "", Images()),
        ("oci:/home/evil", "", Images()),
        ("oci-archive:/home/evil", "", Images()),
        ("docker-archive:/home/evil", "", Images()),
    ],
)
def test_no_image_passes_that_is_not_what_the_runtime_gets(
    runtime: str, image: str, root: str, images: Images
) -> None:
    if runtime == "host" and image.startswith(("library/", "registry.example.org/x")):
        return  # it gets no image
    annotations = {"job.vk.io/image-root": root} if root else {}
    if runtime == KUBERNETES and (root or images.root):
        return  # knows neither
    policy = replace(OPEN, images=OURS.images)
    pod = pod_of(annotations, {"image": image})
    for made in (pod, pod_of(annotations, initContainers=[{**INIT, "image": image}])):
        assert_only_refused_by(made, policy, "policy.images", config_of(runtime, images=images))


INIT = {"name": "init", "command": ["true"]}


@pytest.mark.parametrize("runtime", EVERYWHERE)
@pytest.mark.parametrize(
    ("image", "patterns"),
    [
        ("python", ("library/*",)),
        ("python:3", ("python:*",)),
        ("library/python", ("python",)),
        ("docker://python", ("docker.io/library/python",)),
        ("python@sha256:0123", ("docker.io/library/python@*",)),
        ("registry.example.org/a/b", ("registry.example.org/a/b",)),
        ("registry.example.org/a/b", ("registry.example.org/*",)),
        ("localhost:5000/x", ("localhost:5000/*",)),
        ("evil/x", ("*",)),
    ],
)
def test_images_are_allowed_by_any_name_that_means_them(
    runtime: str, image: str, patterns: tuple[str, ...]
) -> None:
    job = job_of(pod_of(container={"image": image}), config_of(runtime))
    if not (runtime == "host" and image.startswith("docker://")):
        check(job, Policy(images=patterns), config_of(runtime))


@pytest.mark.parametrize("runtime", CONTAINERS)
def test_a_path_is_an_image_only_where_the_site_has_images_or_names_it(runtime: str) -> None:
    site = config_of(runtime, images=Images(directory="/srv/images", unpacked="/cvmfs/unpacked"))
    site = replace(site, volumes=Volumes())
    named = Policy(images=("*", "/opt/*"), host_paths=("/data",))
    for path in ("/srv/images/x", "/cvmfs/unpacked/a/b", "/opt/x.sif", "/data/x"):
        check(job_of(pod_of(container={"image": path}), site), named, site)
    for path in ("/", "/etc", "/srv", "/srv/imagesx", "/cvmfs", "/database/x", "//", "/./"):
        job = job_of(pod_of(container={"image": path}), site)
        assert refusal(job, Policy(), site).startswith("policy.images")
        assert refusal(job, named, site).startswith("policy.images")


@pytest.mark.parametrize("runtime", CONTAINERS)
@pytest.mark.parametrize(
    "image", ["..", "../..", "../../etc", "docker.io/../../etc", "/srv/images/../..", "a/../../b"]
)
def test_no_image_leaves_the_folder_of_images(runtime: str, image: str) -> None:
    site = config_of(runtime, images=Images(directory="/srv/images", unpacked="/cvmfs/unpacked"))
    with pytest.raises(PodRejected):
        job_of(pod_of(container={"image": image}), site)


# --- host paths -----------------------------------------------------------------------------------

MOUNT = {"volumeMounts": [{"name": "v", "mountPath": "/x"}]}
ETC = [{"name": "v", "hostPath": {"path": "/etc"}}]


def options(text: str) -> dict[str, str]:
    return {"slurm-job.vk.io/singularity-options": text}


def mounts(text: str) -> dict[str, str]:
    return {"slurm-job.vk.io/singularity-mounts": text}


@pytest.mark.parametrize("runtime", EVERYWHERE)
@pytest.mark.parametrize(
    "pod",
    [
        pod_of(container=MOUNT, volumes=ETC),
        pod_of(volumes=ETC),
        pod_of(mounts("--bind /etc:/x")),
        pod_of(mounts("--bind=/etc")),
        pod_of(mounts("/data:/y,/etc:/x:ro")),
        pod_of(mounts("--bind /data --bind //etc/./:/x")),
        *[
            pod_of(options(text))
            for text in (
                "--bind /etc:/x",
                "--bind=/etc",
                "--nv --bind /data/a:/b,/etc:/x",
                "-B /etc:/x",
                "-B=/etc:/x",
                "-B/etc:/x",
                "--volume /etc:/x",
                "--volume=/:/x",
                "-v /etc:/x:ro",
                "-v/etc:/x",
                "-itv/data/../etc:/data",
                "--bind /data/../etc:/x",
                "--bind etc:/x",
                "--bind .:/data",
                "--bind '/data/a\\:/../../etc:/x'",
                "--mount type=bind,source=/etc,destination=/x",
                "--mount=type=bind,src=/etc,dst=/x",
                "--mount 'type=bind,\"source=/etc\",destination=/x'",
                "--mount 'type=bind,source=/data,destination=/x\ntype=bind,source=/etc,dst=/y'",
                "--overlay /etc",
                "--overlay=/etc",
                "--home /etc:/root",
                "--rootfs /",
                "--env-file=/etc/passwd",
                "--security-opt seccomp=/etc/y",
                "/etc",
            )
        ],
    ],
)
def test_no_path_of_the_node_passes_whatever_names_it(runtime: str, pod: dict[str, Any]) -> None:
    for allowed in (None, (), ("/data", "/etcetera", "/etc/x")):
        policy = replace(OPEN, host_paths=allowed)
        assert_only_refused_by(pod, policy, "policy.host_paths", config_of(runtime))


@pytest.mark.parametrize("runtime", CONTAINERS)
def test_paths_of_the_site_may_be_mounted_in_every_way(runtime: str) -> None:
    policy = Policy(host_paths=("/data",), runtime_options=("--bind=*", "-v=*", "--mount=*"))
    site = config_of(runtime)
    for pod in (
        pod_of(container=MOUNT, volumes=[{"name": "v", "hostPath": {"path": "/data/x/"}}]),
        pod_of(mounts("--bind /data:/x --bind /data/y")),
        pod_of(options("--bind /data/a:/etc:ro")),
        pod_of(options("-v=/data/a:/etc:ro")),
        pod_of(options("--mount type=bind,source=/data,destination=/etc,ro")),
    ):
        check(job_of(pod, site), policy, site)


# --- rights ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("runtime", EVERYWHERE)
@pytest.mark.parametrize(
    "pod",
    [
        pod_of(container={"securityContext": {"privileged": True}}),
        pod_of(container={"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}),
        pod_of(initContainers=[{**INIT, "image": "x", "securityContext": {"privileged": True}}]),
        pod_of(hostPID=True),
        pod_of(hostIPC=True),
        *[
            pod_of(options(text))
            for text in (
                "--privileged",
                "--privileged=true",
                "--add-caps=ALL",
                "--add-caps ALL",
                "--cap-add=ALL",
                "--keep-privs",
                "--allow-setuid",
                "--security-opt label=disable",
                "--pid=host",
                "--pid host",
                "--userns=host",
                "--no-mount home",
                "--nv --privileged",
                "--env A=b --privileged",
                "--env SECRET",
                "--env=SECRET",
                "--env --privileged",
                "--nv image-that-takes-the-place-of-the-image",
                "--",
                "-e -C",
                "image",
                "''",
            )
        ],
    ],
)
def test_no_further_right_passes_whatever_asks_for_it(runtime: str, pod: dict[str, Any]) -> None:
    policy = replace(OPEN, privileged=False)
    assert_only_refused_by(pod, policy, "policy.privileged", config_of(runtime))


@pytest.mark.parametrize("runtime", ["podman", KUBERNETES])
def test_the_nodes_network_is_a_right_where_pods_have_their_own(runtime: str) -> None:
    policy = replace(OPEN, privileged=False)
    pod = pod_of(hostNetwork=True)
    assert_only_refused_by(pod, policy, "policy.privileged", config_of(runtime))


@pytest.mark.parametrize("where", ["pod", "container"])
def test_to_be_without_the_filter_of_system_calls_is_a_right_in_a_cluster(where: str) -> None:
    context = {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}
    pod = pod_of(**context) if where == "pod" else pod_of(container=context)
    policy = replace(OPEN, privileged=False)
    assert_only_refused_by(pod, policy, "policy.privileged", config_of(KUBERNETES))


@pytest.mark.parametrize("runtime", EVERYWHERE)
@pytest.mark.parametrize(
    "text", ["", "--nv", "--env A=b", "--env=A=/etc", "--env 'A=b c' --nv --pwd /x --shm-size=1g"]
)
def test_options_that_the_policy_names_need_no_right(runtime: str, text: str) -> None:
    check(job_of(pod_of(options(text)), config_of(runtime)), Policy(), config_of(runtime))


def test_the_value_of_an_option_is_not_told() -> None:
    job = job_of(pod_of(options("--token=hunter2 --x")), config_of("podman"))
    assert "hunter2" not in refusal(job, Policy(), config_of("podman"))
    assert "the option --token in singularity-options" in refusal(
        job, Policy(), config_of("podman")
    )


# --- what is not declared -------------------------------------------------------------------------


def rich_pod(runtime: str) -> dict[str, Any]:
    """A pod with a volume of every kind, and all annotations that its runtime knows."""
    kinds: dict[str, Any] = {
        "host": {"hostPath": {"path": "/data/x y/"}},
        "again": {"hostPath": {"path": "//data/it's"}},
        "data": {"persistentVolumeClaim": {"claimName": "data"}},
        "home": {"persistentVolumeClaim": {"claimName": "home"}},
        "empty": {"emptyDir": {}},
        "memory": {"emptyDir": {"medium": "Memory"}},
    }
    if runtime != KUBERNETES:
        kinds["nfs"] = {"nfs": {"server": "nfs.example.org", "path": "/export/y"}}
    names = {"pre-exec", "singularity-commands"} if runtime == KUBERNETES else set()
    annotations = {FAMILIES[0] + name: VALUES[name] for name in VALUES.keys() - names}
    if runtime != KUBERNETES:
        annotations["interlink.eu/wstunnel-client-commands"] = "x"
    listed = [{"name": name, "mountPath": f"/m/{name}"} for name in kinds]
    rights = {"privileged": True, "capabilities": {"add": ["SYS_ADMIN"], "drop": ["ALL"]}}
    container = {"volumeMounts": listed, "securityContext": rights}
    volumes = [{"name": name, **source} for name, source in kinds.items()]
    return pod_of(annotations, container, volumes=volumes, initContainers=[{**INIT, "image": "x"}])


@pytest.mark.parametrize("runtime", EVERYWHERE)
def test_what_a_script_holds_is_what_its_job_declares(runtime: str) -> None:
    site = config_of(runtime)
    check(job_of(rich_pod(runtime), site), OPEN, site)
    drop = {"securityContext": {"capabilities": {"drop": ["ALL"]}}}
    check(job_of(pod_of(container=drop), site), Policy(), site)


@pytest.mark.parametrize("runtime", EVERYWHERE)
def test_a_job_that_declares_less_than_its_script_holds_is_refused(runtime: str) -> None:
    site = config_of(runtime)
    job = job_of(rich_pod(runtime), site)
    less: list[dict[str, Any]] = [
        {"images": job.images[:1]},
        {"images": ("library/x", "library/y")},
        {"host_paths": ()},
        {"host_paths": job.host_paths[:1]},
    ]
    if runtime in ("podman", KUBERNETES):
        less.append({"privileged": False})
    if runtime != KUBERNETES:
        for name in ("pre-exec", "singularity-commands", "wstunnel-client-commands", "mpi-flags"):
            used = tuple(one for one in job.used_annotations if one != name)
            less.append({"used_annotations": used})
        unplaced = replace(site, volumes=replace(VOLUMES, claims={}))
        assert "which it does not declare" in refusal(job, OPEN, unplaced)
    for changed in less:
        assert "which it does not declare" in refusal(job._replace(**changed), OPEN, site)
    assert "the plugin is older" in refusal(job._replace(images=()), OPEN, site)


@pytest.mark.parametrize(
    "content", [None, b"", b"[]", b"{", b'{"pod": {"spec": {}}}', b"[" * 99999]
)
def test_manifests_that_cannot_be_read_are_refused(content: bytes | None) -> None:
    site = config_of(KUBERNETES)
    files = () if content is None else (File(MANIFESTS, content, 0o600, True),)
    job = job_of(pod_of(), site)._replace(files=files)
    assert "manifests that cannot be read" in refusal(job, OPEN, site)
