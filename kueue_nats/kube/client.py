"""Kubernetes client of the operator: its calls, and their errors."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Mapping
from typing import Any, Optional

from kueue_nats.plan.objects import KUEUE, NEW, OLD, WORKLOADS
from kueue_nats.spec.errors import (
    Conflicting,
    KueueClientError,
    NotAllowed,
    NotFound,
    Rejected,
    Unreachable,
)
from kueue_nats.spec.masterqueue import GROUP, PLURAL, VERSION
from kueue_nats.spec.settings import PROGRAM
from templates.kube_api.client import (
    APPLY_PATCH,
    JSON,
    MERGE_PATCH,
    OK,
    Call,
    Failure,
    Json,
    KubeClient,
    with_query,
)
from templates.kube_api.kubeconfig import Kubeconfig

CONNECT_S, READ_S = 3, 10


def connect(kubeconfig: str) -> KueueClient:
    """Return a client by a kubeconfig; without one, for the cluster of our own pod."""
    source = Kubeconfig(kubeconfig, kubeconfig or "kubeconfig")
    return KueueClient(
        KubeClient(source, _error_of, agent=PROGRAM, connect_s=CONNECT_S, read_s=READ_S)
    )


class KueueClient:
    """Client with one method per call; failures raise ``KueueClientError``."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self.writes = 0

    # --- reading --------------------------------------------------------------------------------

    def kueue_version(self) -> str:
        """Return the newest version of Kueue's API that is served and supported."""
        groups = self._client.get("/apis", "finding out the version of Kueue's API")["groups"]
        versions = [v["version"] for g in groups if g["name"] == KUEUE for v in g["versions"]]
        for version in (NEW, OLD):
            if version in versions:
                return version
        raise NotFound(
            "Kueue", f"the cluster serves neither {NEW} nor {OLD} of it: is it installed?"
        )

    def masters(self) -> list[Json]:
        """Return every MasterQueue."""
        return self._client.items(f"/apis/{GROUP}/{VERSION}/{PLURAL}", f"listing {PLURAL}.{GROUP}")

    def listed(self, plural: str, version: str) -> dict[str, Json]:
        """Return the objects of a cluster-scoped kind of Kueue, by name."""
        items = self._client.items(f"/apis/{KUEUE}/{version}/{plural}", f"listing {plural}.{KUEUE}")
        return {item["metadata"]["name"]: item for item in items}

    def workloads(self, version: str) -> list[Json]:
        """Return every Workload."""
        return self._client.items(
            f"/apis/{KUEUE}/{version}/{WORKLOADS}", f"listing {WORKLOADS}.{KUEUE}"
        )

    def pods_of_jobs(self) -> list[Json]:
        """Return every pod that Kueue has admitted."""
        selector = {"labelSelector": "kueue.x-k8s.io/podset"}
        return self._client.items("/api/v1/pods", "listing pods", selector)

    def secret(self, namespace: str, name: str, key: str) -> str:
        """Return one value of a Secret; errors never contain it."""
        what = f"Secret {namespace}/{name}"
        data = self._client.get(f"/api/v1/namespaces/{namespace}/secrets/{name}", what)
        value = (data.get("data") or {}).get(key)
        if value is None:
            raise NotFound(what, f"has no key {key}")
        try:
            return base64.b64decode(value, validate=True).decode().strip()
        except ValueError:
            raise Rejected(what, f"{key} is not text") from None

    # --- writing --------------------------------------------------------------------------------

    def apply(self, plural: str, body: Json, *, dry_run: bool = False) -> Json:
        """Apply an object on the server side; fields of our earlier body that are missing now go.

        Return the object as it is then.
        """
        name = body["metadata"]["name"]
        query = {"fieldManager": PROGRAM, "force": "true"}
        query.update({"dryRun": "All"} if dry_run else {})
        path = with_query(f"/apis/{body['apiVersion']}/{plural}/{name}", query)
        return self._write("PATCH", path, f"{body['kind']} {name}", body, APPLY_PATCH)

    def delete(self, plural: str, version: str, item: Mapping[str, Any]) -> None:
        """Delete the object that was read, and not another one that has its name by now."""
        metadata = item["metadata"]
        body = {"preconditions": {"uid": metadata["uid"]}, "propagationPolicy": "Background"}
        path = f"/apis/{KUEUE}/{version}/{plural}/{metadata['name']}"
        with contextlib.suppress(NotFound):
            self._write("DELETE", path, f"deleting {plural}/{metadata['name']}", body)

    def write_status(self, name: str, status: Json, resource_version: str) -> None:
        """Patch the status of a MasterQueue, unless it has changed meanwhile."""
        path = f"/apis/{GROUP}/{VERSION}/{PLURAL}/{name}/status"
        body = {"metadata": {"resourceVersion": resource_version}, "status": status}
        self._write("PATCH", path, f"status of MasterQueue {name}", body, MERGE_PATCH)

    def patch_workload(self, version: str, namespace: str, name: str, body: Json) -> None:
        """Patch single fields of a Workload."""
        path = f"/apis/{KUEUE}/{version}/namespaces/{namespace}/{WORKLOADS}/{name}"
        self._write("PATCH", path, f"Workload {namespace}/{name}", body, MERGE_PATCH)

    def write_event(self, body: Json) -> None:
        """Write an Event; a MasterQueue has no namespace, so its Events go into default."""
        self._write("POST", "/api/v1/namespaces/default/events", "writing an Event", body)

    # --- the lease ------------------------------------------------------------------------------

    def lease(self, namespace: str, name: str) -> Optional[Json]:
        """Return the Lease; None if there is none."""
        try:
            return self._client.get(f"{_leases(namespace)}/{name}", f"Lease {namespace}/{name}")
        except NotFound:
            return None

    def write_lease(self, namespace: str, name: str, body: Json) -> None:
        """Create the Lease, or replace exactly the one that was read."""
        what, path = f"Lease {namespace}/{name}", _leases(namespace)
        if "resourceVersion" in body["metadata"]:
            self._client.call(Call("PUT", f"{path}/{name}", what, body))
        else:
            self._client.call(Call("POST", path, what, body))

    def _write(self, method: str, path: str, what: str, body: Json, kind: str = JSON) -> Json:
        self.writes += 1
        return self._client.call(Call(method, path, what, body, kind))


_KINDS = {
    401: NotAllowed,
    403: NotAllowed,
    404: NotFound,
    409: Conflicting,
    400: Rejected,
    422: Rejected,
}


def _leases(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


def _error_of(failure: Failure) -> KueueClientError:
    """Return the error of a failed call, by its status, with the API server's message."""
    what, status, reason, _ = failure
    if status == OK:
        return KueueClientError(what, reason)
    if "admission webhook" in reason and "denied the request" in reason:
        return Rejected(what, reason)
    return _KINDS.get(status, Unreachable)(what, reason)
