"""Tokens of an OpenID issuer, by the two flows that need no person.

This is the HTTP side; ``token.py`` decides who requests a token, and when. Responses are checked
like everything from outside, and no message contains a secret.
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

TIMEOUT_S = 10.0  # for a connection, and again for each response
LARGEST_RESPONSE = 256 * 1024  # in bytes
DEFAULT_LIFETIME_S = 300.0  # of a token whose issuer names none
METADATA_TTL_S = 3600.0  # for how long an issuer's metadata is cached
_WELL_KNOWN = "/.well-known/openid-configuration"
_TRANSIENT = ("temporarily_unavailable", "server_error", "slow_down")  # errors that are no refusal


class Client(NamedTuple):
    """The client of the issuer that requests tokens."""

    id: str
    secret: str = ""
    """Empty if the client has none."""


class Grant(NamedTuple):
    """A token that was issued."""

    access: str
    lifetime_s: float
    refresh: str
    """The refresh token for the next request; empty if the old one stays."""


class _Metadata(NamedTuple):
    token_endpoint: str
    by_form: bool  # whether the client's secret goes into the form
    read_at: float


class Issuer:
    """One issuer; every request may take ``TIMEOUT_S`` and a little more."""

    def __init__(self, address: str, ca_file: str = "") -> None:
        self._address = address
        self._verify = ca_file or True
        self._metadata: Optional[_Metadata] = None

    def client_credentials(self, client: Client, scopes: str, audience: str) -> Grant:
        """Request a token for the client itself."""
        return self._request_token(
            client, _form("client_credentials", scopes, audience), client.secret
        )

    def refresh(self, client: Client, token: str, scopes: str, audience: str) -> Grant:
        """Request a token for the owner of a refresh token."""
        form = {**_form("refresh_token", scopes, audience), "refresh_token": token}
        return self._request_token(client, form, client.secret, token)

    def _request_token(self, client: Client, form: dict[str, str], *secrets: str) -> Grant:
        try:
            metadata = self._read_metadata()
            headers = {"Accept": "application/json"}
            auth = None
            if client.secret and not metadata.by_form:
                auth = (quote_plus(client.id), quote_plus(client.secret))
            else:
                form["client_id"] = client.id
            if client.secret and metadata.by_form:
                form["client_secret"] = client.secret
            response = self._request("POST", metadata.token_endpoint, form, auth, headers)
            return _grant(response, secrets, self._address)
        except IssuerUnavailable:
            self._metadata = None
            raise

    def _read_metadata(self) -> _Metadata:
        """Return the issuer's metadata; raise ``IssuerUnavailable``."""
        metadata, now = self._metadata, time.monotonic()
        if metadata is not None and now - metadata.read_at < METADATA_TTL_S:
            return metadata
        status, body = self._request("GET", self._address.rstrip("/") + _WELL_KNOWN)[:2]
        if status != 200 or not isinstance(body, dict):
            raise self._unavailable(f"its description of itself cannot be read (HTTP {status})")
        if str(body.get("issuer")).rstrip("/") != self._address.rstrip("/"):
            raise self._unavailable(f"it calls itself {one_line(str(body.get('issuer')), 100)}")
        endpoint = body.get("token_endpoint")
        if not isinstance(endpoint, str) or urlsplit(endpoint).scheme != "https":
            raise self._unavailable("it names no token_endpoint with https")
        methods = body.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        by_form = "client_secret_basic" not in methods
        self._metadata = _Metadata(endpoint, by_form, now)
        return self._metadata

    def _request(
        self,
        method: str,
        address: str,
        form: Optional[Mapping[str, str]] = None,
        auth: Optional[tuple[str, str]] = None,
        headers: Optional[Mapping[str, str]] = None,
    ) -> tuple[int, Any, Mapping[str, str]]:
        """Return status, JSON (None if it is none) and headers; never follow a redirect."""
        try:
            with requests.request(
                method,
                address,
                data=form,
                auth=auth or _no_auth,
                headers=headers,
                timeout=TIMEOUT_S,
                verify=self._verify,
                allow_redirects=False,
                stream=True,
            ) as response:
                content = next(response.iter_content(LARGEST_RESPONSE + 1), b"")
                status, received = response.status_code, dict(response.headers)
        except (requests.RequestException, OSError, ValueError) as error:
            raise self._unavailable(_root_cause(error)) from None
        try:
            return (
                status,
                json.loads(content) if len(content) <= LARGEST_RESPONSE else None,
                received,
            )
        except ValueError:
            return status, None, received

    def _unavailable(self, message: str) -> IssuerUnavailable:
        return IssuerUnavailable(f"the issuer {self._address}: {message}")


def _no_auth(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Keep ``requests`` from reading passwords in the user's .netrc."""
    return request


def _form(grant_type: str, scopes: str, audience: str) -> dict[str, str]:
    form = {"grant_type": grant_type, "scope": scopes, "audience": audience}
    return {key: value for key, value in form.items() if value}


def _root_cause(error: Exception) -> str:
    """Return the innermost reason: the outer ones repeat addresses and objects."""
    inner: BaseException = error
    while inner.__context__ is not None or inner.__cause__ is not None:
        inner = inner.__cause__ or inner.__context__ or inner
    return one_line(str(inner) or type(inner).__name__, 200)


def _grant(
    response: tuple[int, Any, Mapping[str, str]], secrets: tuple[str, ...], address: str
) -> Grant:
    """Return the token, or raise why there is none."""
    status, body, headers = response
    body = body if isinstance(body, dict) else {}
    issuer = f"the issuer {address}"
    error = body.get("error")
    if status == 429 or status >= 500 or error in _TRANSIENT:
        raise IssuerUnavailable(f"{issuer} has no time (HTTP {status})", _pause_s(headers))
    if isinstance(error, str):
        message = f"{error}: {body.get('error_description') or 'it says no more'}"
        for secret in filter(None, secrets):
            message = message.replace(secret, "...")
        raise IssuerRefused(f"{issuer} refuses: {one_line(message, 200)}")
    access, token_type = body.get("access_token"), str(body.get("token_type", "bearer"))
    if status != 200 or not isinstance(access, str):
        raise IssuerUnavailable(f"{issuer} answers what is no token (HTTP {status})")
    if token_type.lower() != "bearer" or not access.isascii() or not access.isprintable():
        raise IssuerRefused(
            f"{issuer} gives a token that cannot be used ({one_line(token_type, 40)})"
        )
    refresh = body.get("refresh_token")
    return Grant(access, _lifetime_s(body), refresh if isinstance(refresh, str) else "")


def _lifetime_s(body: Mapping[str, Any]) -> float:
    try:
        lifetime_s = float(body["expires_in"])
    except (KeyError, TypeError, ValueError):
        return DEFAULT_LIFETIME_S
    return lifetime_s if 0 < lifetime_s < float("inf") else DEFAULT_LIFETIME_S


def _pause_s(headers: Mapping[str, str]) -> float:
    """Return the pause that the issuer asks for, in seconds; 0 if it names none."""
    text = {key.lower(): value for key, value in headers.items()}.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else 0.0
