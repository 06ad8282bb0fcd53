"""Who comes in to a computing element's interLink: with real OAuth2-proxy and interLink."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chart.front_door import CLIENT, Door, Fickle, open_door
from tests.support import oidc, system
from tests.support.oidc import Issuer
from tests.support.system import POOL, System, request_of

ASKED = [
    ("POST", "/create"),
    ("DELETE", "/delete"),
    ("GET", "/status"),
    ("GET", "/getLogs"),
    ("POST", "/pinglink"),
    ("POST", "/updateCache"),
]


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Issuer]:
    with oidc.running(tmp_path_factory.mktemp("issuer")) as found:
        yield found


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    folder = tmp_path_factory.mktemp("behind")
    with system.running(folder, plugin={"default_pool": POOL}) as found:
        yield found


@pytest.fixture(scope="module")
def door(
    issuer: Issuer, behind: System, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Door]:
    with open_door(behind, issuer, tmp_path_factory.mktemp("door") / "one") as found:
        yield found


def token_of(
    issuer: Issuer, audience: str = CLIENT, lifetime_s: float = 600, **more: object
) -> str:
    return issuer.sign("a-virtual-kubelet", "openid", audience, lifetime_s, **more)


@pytest.mark.parametrize(("method", "path"), ASKED)
def test_nobody_comes_in_without_a_token(door: Door, method: str, path: str) -> None:
    answer = door.ask(method, path, body=[])
    assert answer.status == 401, answer
    assert "html" not in answer.text.lower()


def test_who_has_the_right_token_reaches_the_plugin(door: Door, issuer: Issuer) -> None:
    answer = door.ask("POST", "/pinglink", token_of(issuer))
    assert answer.status == 200, answer
    assert "cpu" in json.loads(answer.text)["resources"]


def test_a_token_that_is_over_is_of_no_use(door: Door, issuer: Issuer) -> None:
    assert door.ask("POST", "/pinglink", token_of(issuer, lifetime_s=-5)).status == 401


def test_a_token_for_somebody_else_is_of_no_use(door: Door, issuer: Issuer) -> None:
    assert door.ask("POST", "/pinglink", token_of(issuer, "somebody-else")).status == 401


def test_a_token_for_nobody_is_of_no_use(door: Door, issuer: Issuer) -> None:
    assert door.ask("POST", "/pinglink", token_of(issuer, "")).status == 401


def test_a_token_of_another_issuer_is_of_no_use(door: Door, tmp_path: Path) -> None:
    with oidc.running(tmp_path) as other:
        assert door.ask("POST", "/pinglink", token_of(other)).status == 401


def test_a_token_that_only_says_it_is_the_issuers_is_of_no_use(
    door: Door, issuer: Issuer, tmp_path: Path
) -> None:
    with oidc.running(tmp_path) as other:
        other.url = issuer.url  # its key stays its own
        assert door.ask("POST", "/pinglink", token_of(other)).status == 401


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "eyJhbGciOiJub25lIn0.e30."])
def test_what_is_no_token_is_of_no_use(door: Door, token: str) -> None:
    assert door.ask("POST", "/pinglink", token).status == 401


def test_a_changed_token_is_of_no_use(door: Door, issuer: Issuer) -> None:
    head, claims, signature = token_of(issuer, "somebody-else").split(".")
    wanted = token_of(issuer).split(".")[1]
    assert claims != wanted
    assert door.ask("POST", "/pinglink", f"{head}.{wanted}.{signature}").status == 401


def test_further_audiences_and_groups_may_be_asked_for(
    behind: System, issuer: Issuer, tmp_path: Path
) -> None:
    asked = {"audiences": ["cluster-b"], "allowedGroups": ["/prod"], "groupsClaim": "wlcg.groups"}
    with open_door(behind, issuer, tmp_path / "door", **asked) as door:
        for audience in (CLIENT, "cluster-b"):
            for groups, status in ((["/prod"], 200), (["/dev"], 403), ([], 403)):
                token = token_of(issuer, audience, **{"wlcg.groups": groups})
                assert door.ask("POST", "/pinglink", token).status == status, groups


def test_a_ping_that_meets_the_end_of_a_connection_is_sent_again(
    behind: System, issuer: Issuer, tmp_path: Path
) -> None:
    with Fickle() as inner, open_door(behind, issuer, tmp_path / "door", inner=inner.port) as door:
        token = token_of(issuer)
        answers = [door.ask("POST", "/pinglink", token).status for _ in range(6)]
    assert answers == [200] * 6
    assert inner.broken >= 2


def test_a_pod_goes_through_the_door_and_back(door: Door, issuer: Issuer, behind: System) -> None:
    """With a token that lives longer than each request, and the plugin's own default pool."""
    token = token_of(issuer)
    pod = request_of("echo through the door; exit 3", pool="")["pod"]
    asked = {"pod": pod, "configmaps": None, "secrets": None, "projectedvolumesmaps": None}
    created = door.ask("POST", "/create", token, asked)
    assert created.status == 200, created
    assert json.loads(created.text)["PodUID"] == pod["metadata"]["uid"]
    assert behind.ended(pod)[0]["exitCode"] == 3
    status = door.ask("GET", "/status", token, [pod])
    (told,) = json.loads(status.text)
    assert told["containers"][0]["state"]["terminated"]["exitCode"] == 3
    deleted = door.ask("DELETE", "/delete", token, pod)
    assert deleted.status == 200, deleted
    behind.until(lambda: not behind.directory(pod).exists(), "the job's directory is gone")
