"""What Kubernetes itself knows: the uids of pods, and which cluster it is; and the status of one.

A list is whole or an error: one of which a page is missing is none.
"""

from __future__ import annotations

import urllib.parse
from typing import Any, NamedTuple, Optional

from templates.common.errors import InterlinkNatsError, one_line
from templates.kube_api.client import OK, STRATEGIC_PATCH, Call, Failure, KubeClient, TokenFile
from templates.kube_api.errors import message_with_status

AGENT = "interlink-plugin"
TIMEOUT_S = 20.0
# Of a pod only its metadata; a server that does not know how sends the pods themselves.
PARTIAL = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
LISTS = ("PartialObjectMetadataList", "PodList")
UNENDED = "status.phase!=Succeeded,status.phase!=Failed"
ANSWERS_AGAIN = "Kubernetes answers again"


class ClusterError(InterlinkNatsError):
    """Kubernetes could not be asked, or did not answer as it should: nothing is known."""

    def __init__(self, reason: str, status: int = 0) -> None:
        super().__init__(reason)
        self.status = status  # of the answer; 0 without one


class PodChanged(InterlinkNatsError):
    """A pod is not what it was when it was read."""


class Access(NamedTuple):
    """Where the API server is, and who asks it."""

    url: str  # https://, perhaps with a path
    token_file: str
    ca_file: str  # empty: the system's own


class Cluster:
    """The few calls that the plugin makes."""

    def __init__(self, access: Access) -> None:
        def error_of(failure: Failure) -> ClusterError:
            if failure.status > OK:
                words = message_with_status("the API server says", failure.status, failure.body)
            else:
                words = f"{access.url}: {failure.reason}"
            return ClusterError(one_line(words), failure.status)

        self._client = KubeClient(
            TokenFile(*access), error_of, agent=AGENT, connect_s=TIMEOUT_S, read_s=TIMEOUT_S
        )

    def identity(self) -> str:
        """Return the uid of the namespace kube-system, which no other cluster has."""
        what = "the namespace kube-system"
        return _uid(self._client.get("/api/v1/namespaces/kube-system", what), what)

    def pods(self) -> set[str]:
        """Return the uids of all pods there are, whatever has become of them."""
        return self._uids({})

    def unended_pods(self) -> set[str]:
        """Return the uids of those that have not ended, as far as Kubernetes knows."""
        return self._uids({"fieldSelector": UNENDED})

    def pod(self, namespace: str, name: str) -> Optional[dict[str, Any]]:
        """Return the whole of it; None if there is none."""
        try:
            return self._client.get(_path(namespace, name), f"pod {namespace}/{name}")
        except ClusterError as error:
            if error.status == 404:
                return None
            raise

    def write_status(self, pod: dict[str, Any], status: dict[str, Any]) -> None:
        """Change the status of a pod; raise ``PodChanged`` if it is not what was read."""
        metadata = pod["metadata"]
        precondition = {key: metadata[key] for key in ("uid", "resourceVersion")}
        body = {"metadata": precondition, "status": status}
        path = f"{_path(metadata['namespace'], metadata['name'])}/status"
        try:
            self._client.call(Call("PATCH", path, path, body, STRATEGIC_PATCH))
        except ClusterError as error:
            if error.status in (404, 409):
                raise PodChanged(path) from None
            raise

    def _uids(self, selected: dict[str, str]) -> set[str]:
        uids: set[str] = set()
        for page in self._client.pages("/api/v1/pods", "listing pods", selected, PARTIAL):
            items, metadata = _items(page), page.get("metadata")
            if type(metadata) is not dict or not metadata.get("resourceVersion"):
                raise ClusterError("the API server's list of pods is not one")
            uids.update(_uid(item, "a pod in the API server's list") for item in items)
        return uids


def _path(namespace: str, name: str) -> str:
    quoted = (urllib.parse.quote(word, safe="") for word in (namespace, name))
    return "/api/v1/namespaces/{}/pods/{}".format(*quoted)


def _items(page: dict[str, Any]) -> list[Any]:
    """Return what a list holds; the real one says null where a list of metadata is empty."""
    items = page.get("items", "missing")
    if page.get("kind") in LISTS and (items is None or type(items) is list):
        return items or []
    raise ClusterError("the API server's list of pods is not one")


def _uid(item: object, what: str) -> str:
    metadata = item.get("metadata") if type(item) is dict else None
    uid = metadata.get("uid") if type(metadata) is dict else None
    if type(uid) is not str or not uid:
        raise ClusterError(f"{what} has no uid")
    return uid
