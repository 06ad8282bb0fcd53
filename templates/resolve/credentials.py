"""Registry credentials from a pod's imagePullSecrets, if they came with it."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

from templates.common.errors import PodRejected
from templates.common.json_codec import has_more_values, load_json
from templates.common.validation import check_texts
from templates.pod.model import Pod

_DOCKER_CONFIG_JSON = ".dockerconfigjson"
_DOCKER_CONFIG = ".dockercfg"
_DOCKER_HUB = "docker.io"
_HUB = (_DOCKER_HUB, "index.docker.io", "registry-1.docker.io")
_MOST_VALUES = 10_000  # in a Secret of logins


class Login(NamedTuple):
    """One user at one registry."""

    registry: str
    user: str
    password: str

    def lines(self) -> bytes:
        """Return user and password on a line each, as the job script reads them."""
        return f"{self.user}\n{self.password}\n".encode()

    def document(self) -> bytes:
        """Return the authentication file that podman reads."""
        auth = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        return json.dumps({"auths": {self.registry: {"auth": auth}}}).encode()


class Logins:
    """Logins in the pull secrets that came with a pod, each of which is read once."""

    def __init__(self, pod: Pod) -> None:
        self._pod = pod
        self._by_host: dict[str, Mapping[str, Any]] = {}  # of each secret: the entries

    def find(self, registry: str) -> Optional[Login]:
        """Return the first login for a registry."""
        host = _DOCKER_HUB if registry in _HUB else registry
        for secret in self._pod.pull_secrets:
            content = self._pod.secrets.get(secret)
            if content is None:
                continue
            if secret not in self._by_host:
                self._by_host[secret] = _entries_by_host(_entries(secret, content.data))
            if host in self._by_host[secret]:
                return _login(secret, registry, self._by_host[secret][host])
        return None


def pull_secret(secret: str, pod: Pod) -> Optional[bytes]:
    """Return a pull secret's logins as a docker configuration; None if it did not come along."""
    content = pod.secrets.get(secret)
    if content is None:
        return None
    return json.dumps({"auths": _entries(secret, content.data)}).encode()


def _entries(secret: str, data: Mapping[str, bytes]) -> Mapping[str, Any]:
    field = f"secret {secret}"
    try:
        if _DOCKER_CONFIG_JSON in data:
            document = _read(field, data[_DOCKER_CONFIG_JSON])["auths"]
        else:
            document = _read(field, data.get(_DOCKER_CONFIG, b"{}"))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise PodRejected(field, "is not a docker configuration") from None
    if not isinstance(document, dict):
        raise PodRejected(field, "is not a docker configuration")
    return document


def _read(field: str, raw: bytes) -> Any:
    if has_more_values(raw, _MOST_VALUES):
        raise PodRejected(field, f"has more than {_MOST_VALUES} values")
    return load_json(raw)


def _entries_by_host(entries: Mapping[str, Any]) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for name, entry in entries.items():
        host = _host(name)
        found.setdefault(_DOCKER_HUB if host in _HUB else host, entry)
    return found


def _host(name: str) -> str:
    return name.partition("://")[2].partition("/")[0] or name.partition("/")[0]


def _login(secret: str, registry: str, entry: Any) -> Login:
    field = f"secret {secret}"
    if not isinstance(entry, dict):
        raise PodRejected(field, f"has no login for {registry}")
    user, password = entry.get("username"), entry.get("password")
    if not (isinstance(user, str) and isinstance(password, str)):
        auth = entry.get("auth")
        try:
            encoded = auth if isinstance(auth, str) else ""
            decoded = base64.b64decode(encoded, validate=True).decode()
        except ValueError:
            raise PodRejected(field, f"the login for {registry} is not base64") from None
        user, _, password = decoded.partition(":")
    check_texts(field, [user, password])
    if not user or "\n" in user + password:
        raise PodRejected(field, f"has no usable login for {registry}")
    return Login(registry, user, password)
