"""What is asked of an OpenID issuer, and what is made of its answers."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs

import pytest
import requests
import responses

from submitter.common.errors import IssuerRefused, IssuerUnavailable
from submitter.tokens.oidc import DEFAULT_LIFETIME_S, Client, Grant, Issuer

HOME = "https://iam.example.org"
ENDPOINT = "https://tokens.example.org/ask"
US = Client("us: we", "pass/word%")
TOKEN = {"access_token": "abc", "token_type": "Bearer", "expires_in": 60}


@pytest.fixture
def web() -> Iterator[responses.RequestsMock]:
    with responses.RequestsMock(assert_all_requests_are_fired=False) as mock:
        yield mock


def describes(web: responses.RequestsMock, **changes: Any) -> None:
    said = {"issuer": f"{HOME}/", "token_endpoint": ENDPOINT, **changes}
    web.get(f"{HOME}/.well-known/openid-configuration", json=said)


def forms(web: responses.RequestsMock) -> list[dict[str, str]]:
    bodies = [call.request.body for call in web.calls if call.request.method == "POST"]
    return [{k: v[0] for k, v in parse_qs(str(body)).items()} for body in bodies]


def ask(home: str = HOME) -> Grant:
    return Issuer(home).client_credentials(US, "compute.read compute.create", "ce:9618")


def test_client_credentials(web: responses.RequestsMock) -> None:
    describes(web)
    web.post(ENDPOINT, json=TOKEN)
    assert ask() == ("abc", 60, "")
    (form,) = forms(web)
    assert form == {
        "grant_type": "client_credentials",
        "scope": "compute.read compute.create",
        "audience": "ce:9618",
    }
    word = str(web.calls[-1].request.headers["Authorization"]).split()[1]
    assert base64.b64decode(word) == b"us%3A+we:pass%2Fword%25"


def test_refresh(web: responses.RequestsMock) -> None:
    describes(web)
    web.post(ENDPOINT, json={**TOKEN, "refresh_token": "next"})
    grant = Issuer(HOME).refresh(Client("us"), "this", "", "")
    assert grant == ("abc", 60, "next")
    (form,) = forms(web)
    assert form == {"grant_type": "refresh_token", "refresh_token": "this", "client_id": "us"}
    assert "Authorization" not in web.calls[-1].request.headers


def test_an_issuer_that_wants_the_secret_in_the_form(web: responses.RequestsMock) -> None:
    describes(web, token_endpoint_auth_methods_supported=["client_secret_post"])
    web.post(ENDPOINT, json=TOKEN)
    ask()
    (form,) = forms(web)
    assert (form["client_id"], form["client_secret"]) == US
    assert "Authorization" not in web.calls[-1].request.headers


def test_it_is_asked_once_who_it_is(web: responses.RequestsMock) -> None:
    describes(web)
    web.post(ENDPOINT, json=TOKEN)
    issuer = Issuer(f"{HOME}/")
    for _ in range(3):
        issuer.client_credentials(US, "", "")
    assert [call.request.method for call in web.calls] == ["GET", "POST", "POST", "POST"]


def test_after_a_failure_it_is_asked_again(web: responses.RequestsMock) -> None:
    describes(web)
    web.post(ENDPOINT, status=503)
    issuer = Issuer(HOME)
    for _ in range(2):
        with pytest.raises(IssuerUnavailable):
            issuer.client_credentials(US, "", "")
    assert [call.request.method for call in web.calls] == ["GET", "POST"] * 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"issuer": "https://other.example.org"}, "it calls itself https://other.example.org"),
        ({"token_endpoint": "http://tokens.example.org"}, "no token_endpoint with https"),
        ({"token_endpoint": None}, "no token_endpoint with https"),
    ],
)
def test_a_description_that_cannot_be(
    web: responses.RequestsMock, changes: dict[str, Any], words: str
) -> None:
    describes(web, **changes)
    with pytest.raises(IssuerUnavailable, match=words):
        ask()


@pytest.mark.parametrize("answer", [{"status": 404}, {"body": "<html>"}, {"json": []}])
def test_no_description(web: responses.RequestsMock, answer: dict[str, Any]) -> None:
    web.get(f"{HOME}/.well-known/openid-configuration", **answer)
    with pytest.raises(IssuerUnavailable, match="description of itself cannot be read"):
        ask()


def test_a_refusal_says_why_and_nothing_secret(web: responses.RequestsMock) -> None:
    describes(web)
    said = {"error": "invalid_grant", "error_description": f"this\nis not {US.secret} of you"}
    web.post(ENDPOINT, status=400, json=said)
    with pytest.raises(IssuerRefused) as caught:
        Issuer(HOME).refresh(US, "this", "", "")
    assert str(caught.value) == f"the issuer {HOME} refuses: invalid_grant: ... is not ... of you"


@pytest.mark.parametrize(
    ("answer", "pause_s"),
    [
        ({"status": 429, "headers": {"Retry-After": "7"}}, 7),
        ({"status": 500, "json": {"error": "invalid_grant"}}, 0),
        ({"status": 503, "headers": {"Retry-After": "tomorrow"}}, 0),
        ({"status": 400, "json": {"error": "temporarily_unavailable"}}, 0),
    ],
)
def test_no_time(web: responses.RequestsMock, answer: dict[str, Any], pause_s: float) -> None:
    describes(web)
    web.post(ENDPOINT, **answer)
    with pytest.raises(IssuerUnavailable, match="has no time") as caught:
        ask()
    assert caught.value.pause_s == pause_s


@pytest.mark.parametrize(
    "answer",
    [
        {"body": "<html>come in</html>"},
        {"status": 302, "headers": {"Location": "https://elsewhere.example.org"}},
        {"json": {"token_type": "Bearer"}},
        {"body": b"x" * (256 * 1024 + 2)},
    ],
)
def test_what_is_no_token(web: responses.RequestsMock, answer: dict[str, Any]) -> None:
    describes(web)
    web.post(ENDPOINT, **answer)
    with pytest.raises(IssuerUnavailable, match="answers what is no token"):
        ask()


@pytest.mark.parametrize(
    "changes", [{"token_type": "mac"}, {"access_token": "a\nb"}, {"access_token": "ä"}]
)
def test_a_token_of_no_use(web: responses.RequestsMock, changes: dict[str, Any]) -> None:
    describes(web)
    web.post(ENDPOINT, json={**TOKEN, **changes})
    with pytest.raises(IssuerRefused, match="cannot be used"):
        ask()


@pytest.mark.parametrize("said", [None, "soon", 0, -1, float("inf")])
def test_a_lifetime_that_is_not_said(web: responses.RequestsMock, said: object) -> None:
    describes(web)
    web.post(ENDPOINT, json={**TOKEN, "expires_in": said})
    assert ask().lifetime_s == DEFAULT_LIFETIME_S


def test_nobody_answers(web: responses.RequestsMock) -> None:
    web.get(
        f"{HOME}/.well-known/openid-configuration",
        body=requests.ConnectionError(OSError("no route to host")),
    )
    with pytest.raises(IssuerUnavailable, match=f"the issuer {HOME}: .*no route to host"):
        ask()
