"""The edge to a site's cluster: the only module of the submitter that imports its client.

The client finds the cluster, its credentials and TLS. What has run out it renews where it can; when
credentials are refused all of it is read again: who brings new ones has put them into their files.
The few calls that are needed go over its connections, with JSON in and JSON out.
"""

from __future__ import annotations

import json
import re
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any, Optional

import urllib3
import yaml
from kubernetes import client, config

from submitter.errors import BackendUnavailable, SubmitterError
from templates.api_refusals import why
from templates.errors import ConfigError, one_line

CONNECT_S, READ_S = 5, 20
PLAIN = "application/json"
STRATEGIC = "application/strategic-merge-patch+json"
PAGE = 500
UNAUTHORIZED = 401
# What is refused to the account rather than to an object; by one that has just started, for want of
# rules that it has yet to read.
_WITHOUT_RIGHTS = re.compile(r'User ".*" cannot \w+ resource')

Json = dict[str, Any]


class Refused(SubmitterError):
    """The API server has understood, and says no."""

    def __init__(self, what: str, status: int, words: str) -> None:
        super().__init__(one_line(f"{what}: {words}"))
        self.status = status


class Api:
    """The objects of one namespace, one call each."""

    def __init__(self, kubeconfig: str, namespace: str, where: str) -> None:
        self._kubeconfig, self._where = kubeconfig, where
        self._access = self._read_access()
        self._namespaced = f"/api/v1/namespaces/{urllib.parse.quote(namespace)}"

    def _read_access(self) -> tuple[Any, Any]:
        """The client's settings, and its connections."""
        settings: Any = client.Configuration()
        try:
            if self._kubeconfig:
                config.load_kube_config(self._kubeconfig, client_configuration=settings)
            else:
                config.load_incluster_config(client_configuration=settings)
            return settings, client.ApiClient(settings).rest_client.pool_manager
        except (config.ConfigException, yaml.YAMLError, OSError, ValueError, TypeError) as error:
            raise ConfigError(f"{self._where}: kubeconfig", one_line(str(error))) from None

    # --- one object -----------------------------------------------------------------------------

    def create(self, plural: str, body: Json) -> Json:
        """Make an object; returns what it is then."""
        what = f"{body['kind']} {body['metadata']['name']}"
        return self._call("POST", f"{self._namespaced}/{plural}", what, body)

    def get(self, plural: str, name: str) -> Optional[Json]:
        """The object, or None if there is none."""
        try:
            return self._call("GET", f"{self._namespaced}/{plural}/{name}", f"{plural}/{name}")
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    def patch(self, plural: str, name: str, body: Json) -> None:
        """Change what the body says, lists by the names of their entries."""
        path = f"{self._namespaced}/{plural}/{name}"
        self._call("PATCH", path, f"{plural}/{name}", body, STRATEGIC)

    def delete(self, plural: str, name: str, grace_s: Optional[int] = None) -> None:
        """Delete the object; one that is gone already is no error."""
        body: Json = {"propagationPolicy": "Background"}
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        try:
            self._call("DELETE", f"{self._namespaced}/{plural}/{name}", f"{plural}/{name}", body)
        except Refused as refused:
            if refused.status != 404:
                raise

    # --- many -----------------------------------------------------------------------------------

    def pods(self, selector: str) -> tuple[list[Json], str]:
        """All pods with these labels, and the version from which on to watch them."""
        items: list[Json] = []
        query = {"labelSelector": selector, "limit": str(PAGE)}
        while True:
            page = self._call("GET", _with(f"{self._namespaced}/pods", query), "listing pods")
            items += page["items"]
            more = page["metadata"].get("continue")
            if not more:
                return items, str(page["metadata"]["resourceVersion"])
            query["continue"] = more

    def watch(self, selector: str, version: str, seconds: int) -> Iterator[Json]:
        """What happens to them, as it happens, for so long."""
        query = {
            "labelSelector": selector,
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
            "allowWatchBookmarks": "true",
            "watch": "true",
        }
        for line in self._lines(f"{self._namespaced}/pods", query, "watching pods", seconds + 15):
            yield _object(line, "watching pods")

    def log(self, pod: str, query: Mapping[str, str]) -> Iterator[bytes]:
        """The lines of a container's log, each with its end."""
        path = f"{self._namespaced}/pods/{pod}/log"
        return self._lines(path, query, f"the log of {pod}", READ_S)

    def nodes(self, selector: str) -> list[Json]:
        """The cluster's nodes with these labels."""
        query = {"labelSelector": selector} if selector else {}
        nodes: list[Json] = self._call("GET", _with("/api/v1/nodes", query), "nodes")["items"]
        return nodes

    # --- calls ----------------------------------------------------------------------------------

    def _call(
        self, method: str, path: str, what: str, body: Optional[Json] = None, kind: str = PLAIN
    ) -> Json:
        try:
            answer = self._request(method, path, body, kind, READ_S, preload_content=True)
        except _UNREACHABLE as error:
            raise BackendUnavailable(one_line(f"{what}: {error}")) from None
        if answer.status >= 300:
            raise _failure(what, answer.status, answer.data)
        return _object(answer.data, what)

    def _lines(
        self, path: str, query: Mapping[str, str], what: str, seconds: float
    ) -> Iterator[bytes]:
        try:
            answer = self._request(
                "GET", _with(path, query), None, PLAIN, seconds, preload_content=False
            )
            try:
                if answer.status >= 300:
                    raise _failure(what, answer.status, answer.read())
                yield from _split(answer.stream(64 * 1024, decode_content=True))
            finally:
                answer.close()
        except _UNREACHABLE as error:
            raise BackendUnavailable(one_line(f"{what}: {error}")) from None

    def _request(
        self,
        method: str,
        path: str,
        body: Optional[Json],
        kind: str,
        seconds: float,
        *,
        preload_content: bool,
    ) -> Any:
        text = None if body is None else json.dumps(body).encode()
        options = {
            "body": text,
            "timeout": urllib3.Timeout(connect=CONNECT_S, read=seconds),
            "retries": False,
            "preload_content": preload_content,
        }
        answer = self._ask(method, path, kind, options)
        if answer.status == UNAUTHORIZED:
            answer.close()
            self._access = self._read_access()
            answer = self._ask(method, path, kind, options)
        return answer

    def _ask(self, method: str, path: str, kind: str, options: Mapping[str, Any]) -> Any:
        settings, connections = self._access
        headers = {"Accept": PLAIN, "Content-Type": kind, "User-Agent": "interlink-submitter"}
        for entry in settings.auth_settings().values():
            if entry.get("value"):
                headers[entry["key"]] = entry["value"]
        return connections.request(method, settings.host + path, headers=headers, **options)


_UNREACHABLE = (urllib3.exceptions.HTTPError, OSError, config.ConfigException, ConfigError)


def _with(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urllib.parse.urlencode(query)}" if query else path


def _split(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Lines with their ends; the last one may have none."""
    rest = b""
    for block in blocks:
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            yield line + b"\n"
    if rest:
        yield rest


def _object(content: bytes, what: str) -> Json:
    try:
        found = json.loads(content)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise BackendUnavailable(f"{what}: the answer is no JSON object")
    return found


def _failure(what: str, status: int, data: bytes) -> SubmitterError:
    """In the API server's own words; trouble of its own is no answer."""
    words = why(status, data)
    rights = status == 403 and _WITHOUT_RIGHTS.search(words)
    if status >= 500 or status in (UNAUTHORIZED, 408, 429) or rights:
        return BackendUnavailable(one_line(f"{what}: {words}"))
    return Refused(what, status, words)
