"""Registry credentials from a pod's imagePullSecrets, if they came with it."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

from templates.common.errors import PodRejected
from templates.pod.model import Pod

_DOCKER_CONFIG_JSON = ".dockerconfigjson"
_DOCKER_CONFIG = ".dockercfg"
_HUB = ("docker.io", "index.docker.io", "registry-1.docker.io")


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


def registry_login(registry: str, pod: Pod) -> Optional[Login]:
    """Return the first login for a registry in the pull secrets that came with the pod."""
    names = _HUB if registry in _HUB else (registry,)
    for secret in pod.pull_secrets:
        content = pod.secrets.get(secret)
        if content is None:
            continue
        for host, entry in _entries(secret, content.data).items():
            if _host(host) in names:
                return _login(secret, registry, entry)
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
            document = json.loads(data[_DOCKER_CONFIG_JSON])["auths"]
        else:
            document = json.loads(data.get(_DOCKER_CONFIG, b"{}"))
    except (ValueError, KeyError, TypeError):
        raise PodRejected(field, "is not a docker configuration") from None
    if not isinstance(document, dict):
        raise PodRejected(field, "is not a docker configuration")
    return document


def _host(name: str) -> str:
    return name.partition("://")[2].partition("/")[0] or name.partition("/")[0]


def _login(secret: str, registry: str, entry: Any) -> Login:
    field = f"secret {secret}"
    if not isinstance(entry, dict):
        raise PodRejected(field, f"has no login for {registry}")
    user, password = entry.get("username"), entry.get("password")
    if not (isinstance(user, str) and isinstance(password, str)):
        try:
            decoded = base64.b64decode(str(entry.get("auth") or ""), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise PodRejected(field, f"the login for {registry} is not base64") from None
        user, _, password = decoded.partition(":")
    if not user or "\n" in user + password:
        raise PodRejected(field, f"has no usable login for {registry}")
    return Login(registry, user, password)
