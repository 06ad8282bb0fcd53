"""Kubernetes client: the uids of pods, the uid of the cluster, and the status of a pod.

A list is complete, or an error: never one with a missing page.
"""

from __future__ import annotations

import urllib.parse
from typing import Any, Optional

from templates.common.errors import InterlinkNatsError, one_line
from templates.kube_api.client import OK, STRATEGIC_PATCH, Call, Failure, KubeClient, TokenFile
from templates.kube_api.errors import message_with_status

AGENT = "interlink-plugin"
TIMEOUT_S = 20.0
# Of pods only the metadata; a server that does not support it sends whole pods.
PARTIAL = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
LISTS = ("PartialObjectMetadataList", "PodList")
NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"
ANSWERS_AGAIN = "Kubernetes answers again"


class PodApiError(InterlinkNatsError):
    """Failed request to the API server, or one with an unexpected response."""

    def __init__(self, reason: str, status: int = 0) -> None:
        super().__init__(reason)
        self.status = status  # of the response; 0 if there is none


class PodChanged(InterlinkNatsError):
    """Pod that has changed since it was read."""


class PodApi:
    """The few requests that the plugin sends to Kubernetes."""

    def __init__(self, url: str, token_file: str, ca_file: str) -> None:
        def error_of(failure: Failure) -> PodApiError:
            if failure.status > OK:
                message = message_with_status("the API server says", failure.status, failure.body)
            else:
                message = f"{url}: {failure.reason}"
            return PodApiError(one_line(message), failure.status)

        self._client = KubeClient(
            TokenFile(url, token_file, ca_file),
            error_of,
            agent=AGENT,
            connect_s=TIMEOUT_S,
            read_s=TIMEOUT_S,
        )

    def read_cluster_uid(self) -> str:
        """Return the uid of the namespace kube-system, which no other cluster has."""
        name = "the namespace kube-system"
        return _uid_of(self._client.get("/api/v1/namespaces/kube-system", name), name)

    def list_pod_uids(self) -> set[str]:
        """Return the uids of all pods, in any phase."""
        return self._list_uids({})

    def list_unended_pod_uids(self) -> set[str]:
        """Return the uids of pods that have not ended, as far as Kubernetes knows."""
        return self._list_uids({"fieldSelector": NOT_ENDED})

    def read_pod(self, namespace: str, name: str) -> Optional[dict[str, Any]]:
        """Return a pod; None if it does not exist."""
        try:
            return self._client.get(_path(namespace, name), f"pod {namespace}/{name}")
        except PodApiError as error:
            if error.status == 404:
                return None
            raise

    def write_status(self, read_pod: dict[str, Any], status: dict[str, Any]) -> None:
        """Patch the status of a pod; raises ``PodChanged`` if it has changed since it was read."""
        metadata = read_pod["metadata"]
        precondition = {key: metadata[key] for key in ("uid", "resourceVersion")}
        body = {"metadata": precondition, "status": status}
        path = f"{_path(metadata['namespace'], metadata['name'])}/status"
        try:
            self._client.call(Call("PATCH", path, path, body, STRATEGIC_PATCH))
        except PodApiError as error:
            if error.status in (404, 409):
                raise PodChanged(path) from None
            raise

    def _list_uids(self, selected: dict[str, str]) -> set[str]:
        uids: set[str] = set()
        for page in self._client.pages("/api/v1/pods", "listing pods", selected, PARTIAL):
            items, metadata = _items_of(page), page.get("metadata")
            if type(metadata) is not dict or not metadata.get("resourceVersion"):
                raise PodApiError("the API server's list of pods is not one")
            uids.update(_uid_of(item, "a pod in the API server's list") for item in items)
        return uids


def _path(namespace: str, name: str) -> str:
    quoted = (urllib.parse.quote(word, safe="") for word in (namespace, name))
    return "/api/v1/namespaces/{}/pods/{}".format(*quoted)


def _items_of(page: dict[str, Any]) -> list[Any]:
    """Return the items of a list; the real API server sends null for an empty one."""
    items = page.get("items", "missing")
    if page.get("kind") in LISTS and (items is None or type(items) is list):
        return items or []
    raise PodApiError("the API server's list of pods is not one")


def _uid_of(item: object, name: str) -> str:
    metadata = item.get("metadata") if type(item) is dict else None
    uid = metadata.get("uid") if type(metadata) is dict else None
    if type(uid) is not str or not uid:
        raise PodApiError(f"{name} has no uid")
    return uid
