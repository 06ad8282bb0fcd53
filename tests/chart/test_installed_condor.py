"""condor.enabled, installed: from a virtual kubelet elsewhere to a computing element elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.lib.condor.files import AUDIENCE, CLIENT, DOMAIN, IAM, IAM_PORT
from tests.chart import other_cluster
from tests.chart.helm import Json
from tests.chart.installed import REGISTRY, Release, image, in_a_bed
from tests.sites.htcondor.element import SECRET, Element, element
from tests.support.images import archive
from tests.support.kueue_bed import KueueBed, part, until
from tests.support.oidc import Issuer
from tests.support.system import Process

HOST = "interlink.example.org"
DOOR = "interlink"  # the client that tokens have to be for
FULL = "element-interlink-nats"


class ElementRelease(Release):
    name = namespace = "element"


@pytest.fixture(scope="module")
def the_element(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Element]:
    with element(tmp_path_factory.mktemp("element")) as one:
        yield one


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Issuer]:
    found = other_cluster.front(tmp_path_factory.mktemp("front"))
    thread = threading.Thread(target=found.run)
    thread.start()
    yield found
    found.stop()
    thread.join()


def values(issuer: Issuer) -> Json:
    """The eleven of the guide, but for the certificate; and whom to believe here."""
    return {
        **in_a_bed(HOST),
        "condor": {
            "enabled": True,
            "caSecret": "site-ca",
            "settings": {
                "build": {"runtime": {"name": "host"}},
                "policy": {"namespaces": ["*"]},
                "timing": {"poll_s": 1},
            },
        },
        "oauth2ProxyIamIssuer": issuer.url,
        "iamClientId": DOOR,
        "iamClientSecret": "the-client-at-the-front-door",
        "oauth2ProxyCookieSecret": "0123456789abcdef0123456789ABCDEF",
        "oauth2Proxy": {**image("oauth2-proxy"), "caSecret": "front-ca"},
        "backendIamIssuer": f"https://{IAM}:{IAM_PORT}",
        "backendIamClientId": CLIENT,
        "backendIamClientSecret": SECRET,
        "backendIamAudience": AUDIENCE,
        "backendIamCaSecret": "site-ca",
        "pluginCondorPool": f"ctl.{DOMAIN}:9618",
        "pluginCondorScheduler": f"login.{DOMAIN}",
    }


@pytest.fixture(scope="module")
def release(
    bed: KueueBed,
    images: None,
    the_element: Element,
    issuer: Issuer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ElementRelease]:
    folder = tmp_path_factory.mktemp("release")
    program = {"/oauth2-proxy": part("oauth2-proxy") / "oauth2-proxy"}
    bed.load(
        archive(folder / "door.tar", f"{REGISTRY}/oauth2-proxy:test", program, ["/oauth2-proxy"])
    )
    other_cluster.join(bed, the_element)
    other_cluster.make_volume(bed)
    found = ElementRelease(bed, folder, values(issuer))
    bed.kubectl("create", "namespace", found.namespace)
    found.secret("site-ca", **{"ca.crt": the_element.directory / "etc" / "ca.pem"})
    found.secret("front-ca", **{"ca.crt": Path(issuer.ca_file)})
    found.install()
    yield found
    found.uninstall()


@pytest.fixture(scope="module")
def far(release: ElementRelease, issuer: Issuer) -> Iterator[Process]:
    """The virtual kubelet of another cluster."""
    found = other_cluster.virtual_kubelet(release, issuer, DOOR)
    found.start()
    yield found
    found.stop()


def test_all_of_it_runs_and_nobody_comes_in_without_a_token(release: ElementRelease) -> None:
    states = release.containers()
    names = ["interlink", "nats", "oauth2-proxy", "plugin", "submitter"]
    assert sorted(s["name"] for s in states) == names
    assert [s["name"] for s in states if not s["ready"] or s["restartCount"]] == [], (
        release.troubles()
    )
    release.test(pods=1)


def test_the_submitter_finds_nothing_wrong_with_the_element(release: ElementRelease) -> None:
    check = ("interlink-submitter", "check", "--config", "/etc/interlink/config/submitter.yaml")
    release.kubectl("exec", f"deployment/{FULL}-submitter", "--", *check)


def test_a_pod_of_another_cluster_runs_at_the_element(
    release: ElementRelease, far: Process, the_element: Element
) -> None:
    bed = release.bed
    other_cluster.until_ready(bed)
    bed.apply(other_cluster.pod("visitor", "echo at the element; hostname; exit 3"))
    ended = until(lambda: _ended(bed, "visitor"), 180, "the pod")
    assert ended["exitCode"] == 3
    said = bed.kubectl("logs", "visitor").splitlines()
    assert said[0] == "at the element" and said[1] in the_element.nodes


def _ended(bed: KueueBed, name: str) -> Json:
    states = bed.get("pod", name)["status"].get("containerStatuses") or [{"state": {}}]
    found: Json = states[0]["state"].get("terminated", {})
    return found


def test_uninstalling_keeps_what_is_known_of_jobs(release: ElementRelease, far: Process) -> None:
    release.bed.kubectl("delete", "pod", "visitor")
    release.uninstall()
    kept = release.bed.get("persistentvolumeclaims", namespace=release.namespace)["items"]
    assert [claim["metadata"]["name"] for claim in kept] == [f"{FULL}-submitter"]
    release.bed.kubectl("delete", "node", other_cluster.NODE)
