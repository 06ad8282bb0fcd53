"""Asks an OpenID issuer for tokens, by the two flows that need no person.

Who asks when is decided in ``tokens.py``; this is the HTTP side. What an issuer says is checked
like everything that comes from elsewhere, and nothing secret gets into a message.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, Optional
from urllib.parse import quote_plus, urlsplit

import requests

from submitter.common.errors import IssuerRefused, IssuerUnavailable
from templates.common.errors import one_line

TIMEOUT_S = 10.0  # for a connection, and again for each answer
LONGEST = 256 * 1024  # of an answer
UNSAID_S = 300.0  # how long a token is used whose issuer does not say how long it is valid
REMEMBERED_S = 3600.0  # how long an issuer's own description is taken for what it was
_WELL_KNOWN = "/.well-known/openid-configuration"
_PASSING = ("temporarily_unavailable", "server_error", "slow_down")  # errors that are no refusal


class Client(NamedTuple):
    """Who asks."""

    id: str
    secret: str = ""
    """Empty: one that has none."""


class Grant(NamedTuple):
    """What was given."""

    access: str
    lifetime_s: float
    refresh: str
    """What to ask with the next time; empty: what was asked with."""


class _Description(NamedTuple):
    token_endpoint: str
    by_form: bool  # whether the client's secret goes into the form
    read_at: float


class Issuer:
    """One issuer; every question may take ``TIMEOUT_S`` and a little more."""

    def __init__(self, address: str, ca_file: str = "") -> None:
        self._address = address
        self._verify = ca_file or True
        self._description: Optional[_Description] = None

    def client_credentials(self, client: Client, scopes: str, audience: str) -> Grant:
        """A token for the client itself."""
        return self._token(client, _form("client_credentials", scopes, audience), client.secret)

    def refresh(self, client: Client, token: str, scopes: str, audience: str) -> Grant:
        """A token for whom a refresh token was given."""
        form = {**_form("refresh_token", scopes, audience), "refresh_token": token}
        return self._token(client, form, client.secret, token)

    def _token(self, client: Client, form: dict[str, str], *secrets: str) -> Grant:
        try:
            description = self._describe()
            headers = {"Accept": "application/json"}
            auth = None
            if client.secret and not description.by_form:
                auth = (quote_plus(client.id), quote_plus(client.secret))
            else:
                form["client_id"] = client.id
            if client.secret and description.by_form:
                form["client_secret"] = client.secret
            answer = self._ask("POST", description.token_endpoint, form, auth, headers)
            return _grant(answer, secrets, self._address)
        except IssuerUnavailable:
            self._description = None
            raise

    def _describe(self) -> _Description:
        """Where tokens are given; raises ``IssuerUnavailable``."""
        known, now = self._description, time.monotonic()
        if known is not None and now - known.read_at < REMEMBERED_S:
            return known
        status, said = self._ask("GET", self._address.rstrip("/") + _WELL_KNOWN)[:2]
        if status != 200 or not isinstance(said, dict):
            raise self._trouble(f"its description of itself cannot be read (HTTP {status})")
        if str(said.get("issuer")).rstrip("/") != self._address.rstrip("/"):
            raise self._trouble(f"it calls itself {one_line(str(said.get('issuer')), 100)}")
        endpoint = said.get("token_endpoint")
        if not isinstance(endpoint, str) or urlsplit(endpoint).scheme != "https":
            raise self._trouble("it names no token_endpoint with https")
        ways = said.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        by_form = "client_secret_basic" not in ways
        self._description = _Description(endpoint, by_form, now)
        return self._description

    def _ask(
        self,
        method: str,
        address: str,
        form: Optional[Mapping[str, str]] = None,
        auth: Optional[tuple[str, str]] = None,
        headers: Optional[Mapping[str, str]] = None,
    ) -> tuple[int, Any, Mapping[str, str]]:
        """Status, JSON (None if it is none) and headers; nobody is sent elsewhere with a secret."""
        try:
            with requests.request(
                method,
                address,
                data=form,
                auth=auth or _nobody,
                headers=headers,
                timeout=TIMEOUT_S,
                verify=self._verify,
                allow_redirects=False,
                stream=True,
            ) as answer:
                content = next(answer.iter_content(LONGEST + 1), b"")
                status, said = answer.status_code, dict(answer.headers)
        except (requests.RequestException, OSError, ValueError) as error:
            raise self._trouble(_why(error)) from None
        try:
            return status, json.loads(content) if len(content) <= LONGEST else None, said
        except ValueError:
            return status, None, said

    def _trouble(self, words: str) -> IssuerUnavailable:
        return IssuerUnavailable(f"the issuer {self._address}: {words}")


def _nobody(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Keeps requests from looking for passwords in the user's .netrc."""
    return request


def _form(flow: str, scopes: str, audience: str) -> dict[str, str]:
    form = {"grant_type": flow, "scope": scopes, "audience": audience}
    return {key: value for key, value in form.items() if value}


def _why(error: Exception) -> str:
    """The innermost reason: what is around it repeats addresses and objects."""
    inner: BaseException = error
    while inner.__context__ is not None or inner.__cause__ is not None:
        inner = inner.__cause__ or inner.__context__ or inner
    return one_line(str(inner) or type(inner).__name__, 200)


def _grant(
    answer: tuple[int, Any, Mapping[str, str]], secrets: tuple[str, ...], address: str
) -> Grant:
    """What was given, or why nothing was."""
    status, said, headers = answer
    said = said if isinstance(said, dict) else {}
    where = f"the issuer {address}"
    error = said.get("error")
    if status == 429 or status >= 500 or error in _PASSING:
        raise IssuerUnavailable(f"{where} has no time (HTTP {status})", _pause_s(headers))
    if isinstance(error, str):
        words = f"{error}: {said.get('error_description') or 'it says no more'}"
        for secret in filter(None, secrets):
            words = words.replace(secret, "...")
        raise IssuerRefused(f"{where} refuses: {one_line(words, 200)}")
    access, kind = said.get("access_token"), str(said.get("token_type", "bearer"))
    if status != 200 or not isinstance(access, str):
        raise IssuerUnavailable(f"{where} answers what is no token (HTTP {status})")
    if kind.lower() != "bearer" or not access.isascii() or not access.isprintable():
        raise IssuerRefused(f"{where} gives a token that cannot be used ({one_line(kind, 40)})")
    refresh = said.get("refresh_token")
    return Grant(access, _lifetime_s(said), refresh if isinstance(refresh, str) else "")


def _lifetime_s(said: Mapping[str, Any]) -> float:
    try:
        lifetime_s = float(said["expires_in"])
    except (KeyError, TypeError, ValueError):
        return UNSAID_S
    return lifetime_s if 0 < lifetime_s < float("inf") else UNSAID_S


def _pause_s(headers: Mapping[str, str]) -> float:
    """How long it asks to be left alone, in seconds; 0 if it does not say so."""
    said = {key.lower(): value for key, value in headers.items()}.get("retry-after", "")
    return float(said) if said.isascii() and said.isdigit() else 0.0
