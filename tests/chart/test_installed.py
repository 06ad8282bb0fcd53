"""The images and the chart on a bed's node, with a site outside and pods that go the whole way."""

from __future__ import annotations

import contextlib
import logging
import subprocess
from collections.abc import Iterator

import pytest

from templates import __version__
from tests.chart.helm import NAMESPACE, RELEASE
from tests.chart.installed import (
    CERTIFICATE,
    HOST,
    NODE_PORT,
    OURS,
    REGISTRY,
    WAIT,
    Release,
    submitter,
    values,
)
from tests.chart.load import TEAM, Load, job, make_team
from tests.support.kueue_bed import SCRIPT, KueueBed, until
from tests.support.system import Process

logger = logging.getLogger(__name__)


@pytest.fixture(scope="module")
def release(
    bed: KueueBed, images: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Release]:
    found = Release(bed, tmp_path_factory.mktemp("release"), values())
    found.install()
    yield found
    found.uninstall()


@pytest.fixture(scope="module")
def site(release: Release) -> Iterator[Process]:
    with outside(release, f"wss://{HOST}:443") as found:
        yield found


@contextlib.contextmanager
def outside(release: Release, url: str) -> Iterator[Process]:
    """A site that works, and says its password to nobody."""
    password, found = release.password(), submitter(release, url)
    found.start()
    try:
        yield found
    finally:
        code = found.stop()
    assert code == 0, found.log()
    assert password not in found.log()


@pytest.fixture(scope="module")
def team(release: Release, site: Process) -> None:
    make_team(release)


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
    states = release.containers()
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


def test_a_pod_goes_the_whole_way(release: Release, site: Process) -> None:
    release.until_of_use()
    release.test()


def test_nobody_is_denied_a_right_that_it_needs(release: Release, site: Process) -> None:
    release.until_of_use()
    for component in ("virtual-node-interlink", "kueue-nats"):
        selector = f"--selector=app.kubernetes.io/component={component}"
        log = release.kubectl("logs", selector, "--all-containers", "--tail=-1")
        assert "forbidden" not in log.lower(), log


def test_a_job_of_kueues_runs_at_the_site(release: Release, team: None) -> None:
    release.until_of_use()
    release.bed.apply(job("hello", "echo $GREETING"))
    named = ("job", "hello", TEAM)
    until(lambda: release.bed.get(*named)["status"].get("succeeded"), 120, "the job")
    assert "good evening" in release.bed.kubectl("logs", "job/hello", "--namespace", TEAM)


def test_an_upgrade_and_a_rollback_lose_no_job_and_no_password(
    release: Release, team: None
) -> None:
    """All of it starts anew, NATS too, while jobs come, run and end."""
    release.until_of_use()
    before, load = release.secrets(), Load(release, "moved")
    load.create(10)
    release.values["logging"] = {"level": "debug"}
    release.values["nats"]["maxPending"] = "32MB"
    load.during(release.upgrade)
    assert release.secrets() == before
    load.create(5)
    load.during(lambda: release.helm("rollback", RELEASE, "1", *WAIT))
    assert release.secrets() == before
    release.until_of_use()
    starts = load.until_ended()
    logger.warning("%d new starts of the virtual kubelet", starts)
    load.check()
    release.test()


def test_a_killed_container_comes_back_by_itself(release: Release, site: Process) -> None:
    """interLink, too, although it listens on a socket: the one that was killed left none."""

    def states() -> dict[str, int]:
        return {s["name"]: s["restartCount"] for s in release.containers() if s["ready"]}

    before = states()
    # In the bed's own name spaces, where there is one program of this name.
    kill = [str(SCRIPT), "enter", "--name", release.bed.name, "pkill", "-KILL", "-x", "interlink"]
    subprocess.run(kill, check=True, timeout=60)
    after = {**before, "interlink": before["interlink"] + 1}
    until(lambda: states() == after, 60, "interlink")
    release.until_of_use()
    release.test()


def test_without_an_ingress_the_server_speaks_tls_itself(release: Release, site: Process) -> None:
    release.values["ingress"] = {"enabled": False}
    own = {"websocket": {"tlsSecret": CERTIFICATE}}
    release.values["nats"] |= own | {"service": {"type": "NodePort", "nodePort": NODE_PORT}}
    release.upgrade()
    assert site.stop() == 0, site.log()
    with outside(release, f"wss://{release.address}:{NODE_PORT}"):
        release.until_of_use()
        release.test()


def test_jobs_outlive_the_release_and_the_next_one_knows_them(release: Release, team: None) -> None:
    load = Load(release, "stays", seconds=60)
    release.values = values()
    with outside(release, f"wss://{release.address}:{NODE_PORT}"):
        load.create(3)
        load.until_running()
        release.uninstall()
    release.install()  # with new passwords
    with outside(release, f"wss://{HOST}:443"):
        release.until_of_use()
        load.until_ended()
        load.check()


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
    bed.kubectl("get", "node", "interlink")
    assert bed.kubectl("get", "all", "--namespace", NAMESPACE, "--output=name") == ""
