"""The client of a site's cluster: the calls that are made there, and their errors."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Optional

from submitter.common.errors import BackendUnavailable, SubmitterError
from templates.common.errors import one_line
from templates.kube_api.client import (
    JSON,
    OK,
    STRATEGIC_PATCH,
    UNAUTHORIZED,
    Call,
    Failure,
    Json,
    KubeClient,
)
from templates.kube_api.kubeconfig import Kubeconfig

AGENT = "interlink-submitter"
CONNECT_S, READ_S = 5, 20
# The account has no right, rather than the object being refused. An API server that has just
# started says so, too, until it has read its rules.
_FORBIDDEN = re.compile(r'User ".*" cannot \w+ resource')


class ApiRefused(SubmitterError):
    """The API server has refused a valid request."""

    def __init__(self, subject: str, status: int, message: str) -> None:
        super().__init__(one_line(f"{subject}: {message}"))
        self.status = status


class Api:
    """The objects of one namespace, one call each."""

    def __init__(self, kubeconfig: str, namespace: str, where: str) -> None:
        source = Kubeconfig(kubeconfig, f"{where}: kubeconfig")
        self._client = KubeClient(
            source, _to_error, agent=AGENT, connect_s=CONNECT_S, read_s=READ_S
        )
        self._namespaced = f"/api/v1/namespaces/{urllib.parse.quote(namespace)}"

    # --- one object -----------------------------------------------------------------------------

    def create(self, plural: str, body: Json) -> Json:
        """Create an object; return it as the API server has stored it."""
        subject = f"{body['kind']} {body['metadata']['name']}"
        return self._call("POST", f"{self._namespaced}/{plural}", subject, body)

    def get(self, plural: str, name: str) -> Optional[Json]:
        """Return an object; None if there is none."""
        try:
            return self._call("GET", f"{self._namespaced}/{plural}/{name}", f"{plural}/{name}")
        except ApiRefused as refused:
            if refused.status == 404:
                return None
            raise

    def patch(self, plural: str, name: str, body: Json) -> None:
        """Patch an object; entries of lists are merged by their names."""
        path = f"{self._namespaced}/{plural}/{name}"
        self._call("PATCH", path, f"{plural}/{name}", body, STRATEGIC_PATCH)

    def delete(self, plural: str, name: str, grace_s: Optional[int] = None) -> None:
        """Delete an object, if it exists."""
        body: Json = {"propagationPolicy": "Background"}
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        try:
            self._call("DELETE", f"{self._namespaced}/{plural}/{name}", f"{plural}/{name}", body)
        except ApiRefused as refused:
            if refused.status != 404:
                raise

    # --- many -----------------------------------------------------------------------------------

    def pods(self, selector: str) -> tuple[list[Json], str]:
        """Return all pods with these labels, and the version to watch them from."""
        items: list[Json] = []
        version = ""
        query = {"labelSelector": selector}
        for page in self._client.pages(f"{self._namespaced}/pods", "listing pods", query):
            items += page["items"] or ()
            version = str(page["metadata"]["resourceVersion"])
        return items, version

    def watch(self, selector: str, version: str, seconds: int) -> Iterator[Json]:
        """Yield their events as they happen, for so long."""
        query = {
            "labelSelector": selector,
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
            "allowWatchBookmarks": "true",
            "watch": "true",
        }
        path = f"{self._namespaced}/pods"
        return self._client.objects(path, "watching pods", query, seconds + 15)

    def log(self, pod: str, query: Mapping[str, str]) -> Iterator[bytes]:
        """Yield the lines of a container's log, each with its newline."""
        path = f"{self._namespaced}/pods/{pod}/log"
        return self._client.lines(path, f"the log of {pod}", query)

    def nodes(self, selector: str) -> list[Json]:
        """Return the cluster's nodes with these labels."""
        query = {"labelSelector": selector} if selector else {}
        return self._client.items("/api/v1/nodes", "nodes", query)

    def _call(
        self, method: str, path: str, subject: str, body: Optional[Json] = None, kind: str = JSON
    ) -> Json:
        return self._client.call(Call(method, path, subject, body, kind))


def _to_error(failure: Failure) -> SubmitterError:
    """Return the error of a failed call, with the API server's message.

    An error of the API server itself, or of our account, is no refusal.
    """
    subject, status, message, _ = failure
    rights = status == 403 and _FORBIDDEN.search(message)
    if status <= OK or status >= 500 or status in (UNAUTHORIZED, 408, 429) or rights:
        return BackendUnavailable(one_line(f"{subject}: {message}"))
    return ApiRefused(subject, status, message)
