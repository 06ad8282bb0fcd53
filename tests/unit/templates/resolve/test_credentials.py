"""Logins out of pull secrets."""

from __future__ import annotations

import base64
import json
from typing import Any, Optional

import pytest

from templates.common.errors import PodRejected
from templates.pod.model import Content, Pod
from templates.resolve import credentials
from templates.resolve.credentials import Login, Logins


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def auths(**entries: Any) -> dict[str, Any]:
    return {".dockerconfigjson": json.dumps({"auths": entries}).encode()}


def login(registry: str, *secrets: Optional[dict[str, bytes]]) -> Optional[Login]:
    contents = {f"s{i}": Content(data) for i, data in enumerate(secrets) if data is not None}
    pod = Pod("p", "n", "u", {}, {}, (), (), pull_secrets=("s0", "s1", "s2"), secrets=contents)
    return Logins(pod).find(registry)


@pytest.mark.parametrize(
    "entry",
    [
        {"username": "alice", "password": "a:b $x"},
        {"auth": encoded("alice:a:b $x")},
        {"username": "alice", "password": "a:b $x", "auth": "not looked at"},
    ],
)
def test_a_login_is_in_one_field_or_in_two(entry: dict[str, str]) -> None:
    assert login("ghcr.io", auths(**{"ghcr.io": entry})) == Login("ghcr.io", "alice", "a:b $x")


@pytest.mark.parametrize(
    ("registry", "key"),
    [
        ("docker.io", "https://index.docker.io/v1/"),
        ("docker.io", "index.docker.io"),
        ("docker.io", "docker.io"),
        ("docker.io", "https://registry-1.docker.io"),
        ("ghcr.io", "ghcr.io/team"),
        ("ghcr.io", "https://ghcr.io"),
        ("host:5000", "host:5000"),
        ("host:5000", "http://host:5000/v2/"),
    ],
)
def test_a_registry_is_found_by_its_host(registry: str, key: str) -> None:
    found = login(registry, auths(**{"other.org": {}, key: {"auth": encoded("u:p")}}))
    assert found == Login(registry, "u", "p")


def test_the_first_secret_with_a_login_counts_and_missing_ones_are_passed_over() -> None:
    first, second = ({"ghcr.io": {"auth": encoded(f"{user}:p")}} for user in ("one", "two"))
    assert login("ghcr.io", None, auths(**first), auths(**second)) == Login("ghcr.io", "one", "p")
    assert login("quay.io", auths(**first)) is None
    assert login("ghcr.io") is None


def test_the_older_form_of_a_secret_is_understood() -> None:
    old = {".dockercfg": json.dumps({"ghcr.io": {"auth": encoded("u:p")}}).encode()}
    assert login("ghcr.io", old) == Login("ghcr.io", "u", "p")
    assert login("ghcr.io", {"other": b"x"}) is None


def test_a_login_is_written_for_both_kinds_of_runtimes() -> None:
    found = Login("ghcr.io", "alice", "a:b $x")
    assert found.lines() == b"alice\na:b $x\n"
    assert json.loads(found.document()) == {"auths": {"ghcr.io": {"auth": encoded("alice:a:b $x")}}}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({".dockerconfigjson": b"{"}, "is not a docker configuration"),
        ({".dockerconfigjson": b"\xff"}, "is not a docker configuration"),
        ({".dockerconfigjson": b"[]"}, "is not a docker configuration"),
        ({".dockerconfigjson": b"{}"}, "is not a docker configuration"),
        ({".dockerconfigjson": b'{"auths": []}'}, "is not a docker configuration"),
        ({".dockercfg": b"1"}, "is not a docker configuration"),
        (auths(**{"ghcr.io": "x"}), "has no login for ghcr.io"),
        (auths(**{"ghcr.io": {"auth": "???"}}), "the login for ghcr.io is not base64"),
        (auths(**{"ghcr.io": {"auth": "/w=="}}), "the login for ghcr.io is not base64"),
        (auths(**{"ghcr.io": {}}), "has no usable login for ghcr.io"),
        (auths(**{"ghcr.io": {"auth": encoded(":p")}}), "has no usable login for ghcr.io"),
        (auths(**{"ghcr.io": {"auth": encoded("u:p\nq")}}), "has no usable login for ghcr.io"),
    ],
)
def test_a_secret_that_cannot_be_read_is_named(data: dict[str, bytes], words: str) -> None:
    with pytest.raises(PodRejected) as caught:
        login("ghcr.io", data)
    assert str(caught.value) == f"secret s0: {words}"


def test_a_secret_is_read_once_for_all_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[bytes] = []

    def load(raw: bytes) -> Any:
        reads.append(raw)
        return json.loads(raw)

    monkeypatch.setattr(credentials, "load_json", load)
    content = Content(auths(**{"ghcr.io": {"auth": encoded("u:p")}}))
    pod = Pod("p", "n", "u", {}, {}, (), (), pull_secrets=("s",), secrets={"s": content})
    logins = Logins(pod)
    for registry in ("ghcr.io", "quay.io", "docker.io") * 100:
        logins.find(registry)
    assert len(reads) == 1
