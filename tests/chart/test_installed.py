"""The images and the chart on a bed's node, with a site outside and pods that go the whole way."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from templates import __version__
from tests.chart.helm import CHART, NAMESPACE, RELEASE
from tests.chart.installed import OURS, POOL, REGISTRY, Release, load_images, submitter
from tests.kueue_bed import SCRIPT, KueueBed, until
from tests.system import Process


@pytest.fixture(scope="module")
def images(bed: KueueBed, tmp_path_factory: pytest.TempPathFactory) -> None:
    load_images(bed, tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def release(
    bed: KueueBed, images: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Release]:
    found = Release(bed, tmp_path_factory.mktemp("release"))
    found.install()
    yield found
    found.uninstall()


@pytest.fixture(scope="module")
def site(release: Release) -> Iterator[Process]:
    found = submitter(release)
    found.start()
    yield found
    assert found.stop() == 0, found.log()
    assert release.password() not in found.log()


# --- images ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("image", OURS)
def test_an_image_tells_its_version_to_nobody_in_particular(
    bed: KueueBed, images: None, image: str
) -> None:
    name = f"version-{image}"
    security = {
        "runAsNonRoot": True,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    container = {
        "name": "main",
        "image": f"{REGISTRY}/{image}:{__version__}",
        "imagePullPolicy": "Never",
        "args": ["--version"],
        "securityContext": security,
    }
    spec = {"restartPolicy": "Never", "containers": [container]}
    bed.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    phases = ("Succeeded", "Failed")
    until(lambda: bed.get("pod", name)["status"]["phase"] in phases, 60, name)
    assert bed.kubectl("logs", name) == f"{OURS[image]} {__version__}\n"
    assert bed.get("pod", name)["status"]["phase"] == "Succeeded"


# --- the release ----------------------------------------------------------------------------------


def test_all_of_it_runs_and_nothing_has_been_restarted(release: Release) -> None:
    pods = release.bed.get("pods", namespace=NAMESPACE)["items"]
    states = [s for pod in pods for s in pod["status"]["containerStatuses"]]
    assert sorted(s["name"] for s in states) == [
        "interlink",
        "kueue-nats",
        "kueue-nats",
        "nats",
        "plugin",
        "virtual-kubelet",
    ]
    assert [s["name"] for s in states if not s["ready"] or s["restartCount"]] == [], (
        release.troubles()
    )


def test_nobody_is_denied_a_right_that_it_needs(release: Release) -> None:
    until(release.node_is_ready, 90, "the virtual node")
    for component in ("virtual-node-interlink", "kueue-nats"):
        selector = f"--selector=app.kubernetes.io/component={component}"
        log = release.kubectl("logs", selector, "--all-containers", "--tail=-1")
        assert "forbidden" not in log.lower(), log


def test_a_pod_goes_the_whole_way(release: Release, site: Process) -> None:
    until(release.node_is_ready, 90, "the virtual node")
    until(lambda: pool_is_alive(release), 60, "the pool in the MasterQueue")
    told = release.helm("test", RELEASE, "--timeout", "3m")
    assert told.count("Phase:          Succeeded") == 2, told


def pool_is_alive(release: Release) -> bool:
    status = release.bed.get("masterqueue", "masterqueue").get("status", {})
    return any(pool["name"] == POOL for pool in status.get("pools", []))


def test_a_job_of_kueues_runs_at_the_site(release: Release, site: Process) -> None:
    queue = {"clusterQueue": "masterqueue"}
    container = {
        "name": "main",
        "image": "busybox:1.36",
        "command": ["sh", "-c", "echo $GREETING; exit 0"],
        "env": [
            {
                "name": "GREETING",
                "valueFrom": {"configMapKeyRef": {"name": "greeting", "key": "text"}},
            }
        ],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
    }
    tolerations = [{"key": "virtual-node.interlink/no-schedule", "operator": "Exists"}]
    pod = {"restartPolicy": "Never", "containers": [container], "tolerations": tolerations}
    where = {"namespace": "team"}
    release.bed.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "greeting", **where},
            "data": {"text": "good evening"},
        },
        {
            "apiVersion": "kueue.x-k8s.io/v1beta1",
            "kind": "LocalQueue",
            "metadata": {"name": "batch", **where},
            "spec": queue,
        },
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": "hello",
                "labels": {"kueue.x-k8s.io/queue-name": "batch"},
                **where,
            },
            "spec": {"template": {"spec": pod}},
        },
    )
    job = ("job", "hello", "--namespace", "team")
    until(lambda: release.bed.get(*job)["status"].get("succeeded"), 120, "the job")
    log = release.bed.kubectl("logs", "job/hello", "--namespace", "team")
    assert "good evening" in log


def test_passwords_stay_over_an_upgrade_and_a_rollback(release: Release, site: Process) -> None:
    before = release.secrets()
    release.values["logging"] = {"level": "debug"}
    release.helm("upgrade", RELEASE, str(CHART), "--wait", "--timeout", "3m")
    assert release.secrets() == before
    release.helm("rollback", RELEASE, "1", "--wait", "--timeout", "3m")
    assert release.secrets() == before
    until(release.node_is_ready, 90, "the virtual node")
    told = release.helm("test", RELEASE, "--timeout", "3m")
    assert told.count("Phase:          Succeeded") == 2, told


def test_a_killed_container_comes_back_by_itself(release: Release, site: Process) -> None:
    """interLink, too, although it listens on a socket: the one that was killed left none."""
    selector = "app.kubernetes.io/component=virtual-node-interlink"
    (pod,) = release.bed.api.get("pods", namespace=NAMESPACE, selector=selector)["items"]
    name = pod["metadata"]["name"]
    before = {s["name"]: s for s in pod["status"]["containerStatuses"]}
    # In the bed's own name spaces, where there is one program of this name.
    kill = [str(SCRIPT), "enter", "--name", release.bed.name, "pkill", "-KILL", "-x", "interlink"]
    subprocess.run(kill, check=True, timeout=60)

    def is_back() -> bool:
        (now,) = release.bed.api.get("pods", namespace=NAMESPACE, selector=selector)["items"]
        states = {s["name"]: s for s in now["status"]["containerStatuses"]}
        count = before["interlink"]["restartCount"] + 1
        return states["interlink"]["restartCount"] == count and all(
            s["ready"] for s in states.values()
        )

    until(is_back, 60, f"interlink in {name}")
    until(release.node_is_ready, 90, "the virtual node")
    assert release.helm("test", RELEASE, "--timeout", "3m").count("Succeeded") == 2


def test_uninstalling_leaves_the_kind_and_nothing_else(bed: KueueBed, release: Release) -> None:
    """Nor of what controllers have made; but the node stays, as when its kubelet dies."""
    release.uninstall()
    kinds = bed.kubectl("api-resources", "--verbs=list", "--output=name").split()
    kinds = [kind for kind in kinds if not kind.startswith("events")]
    label = f"--selector=app.kubernetes.io/instance={RELEASE}"

    def left() -> str:
        return bed.kubectl("get", ",".join(kinds), "--all-namespaces", label, "--output=name")

    until(lambda: not left(), 120, "the end of all objects")
    bed.kubectl("get", "crd", "masterqueues.vk.io")
