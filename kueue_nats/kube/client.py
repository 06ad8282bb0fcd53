"""The edge to Kubernetes: the calls that the operator makes, and what their failures mean."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Mapping
from typing import Any, Optional

from kueue_nats.plan.objects import KUEUE, NEW, OLD, WORKLOADS
from kueue_nats.spec.errors import (
    ClusterError,
    Conflicting,
    Missing,
    NotAllowed,
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


def connect(kubeconfig: str) -> Cluster:
    """Return the cluster that a kubeconfig names; without one, that of the pod we run in."""
    source = Kubeconfig(kubeconfig, kubeconfig or "kubeconfig")
    return Cluster(KubeClient(source, _error_of, agent=PROGRAM, connect_s=CONNECT_S, read_s=READ_S))


class Cluster:
    """Reads and writes, one call each; whatever fails is a ``ClusterError``."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self.writes = 0

    # --- reading --------------------------------------------------------------------------------

    def kueue_version(self) -> str:
        """The newest version of Kueue's API that is served and that we speak."""
        groups = self._client.get("/apis", "finding out the version of Kueue's API")["groups"]
        versions = [v["version"] for g in groups if g["name"] == KUEUE for v in g["versions"]]
        for version in (NEW, OLD):
            if version in versions:
                return version
        raise Missing(
            "Kueue", f"the cluster serves neither {NEW} nor {OLD} of it: is it installed?"
        )

    def masters(self) -> list[Json]:
        """Every MasterQueue."""
        return self._client.items(f"/apis/{GROUP}/{VERSION}/{PLURAL}", f"listing {PLURAL}.{GROUP}")

    def listed(self, plural: str, version: str) -> dict[str, Json]:
        """Every object of one of Kueue's kinds that belong to no namespace, by name."""
        items = self._client.items(f"/apis/{KUEUE}/{version}/{plural}", f"listing {plural}.{KUEUE}")
        return {item["metadata"]["name"]: item for item in items}

    def workloads(self, version: str) -> list[Json]:
        """Every Workload."""
        return self._client.items(
            f"/apis/{KUEUE}/{version}/{WORKLOADS}", f"listing {WORKLOADS}.{KUEUE}"
        )

    def pods_of_jobs(self) -> list[Json]:
        """Every pod that Kueue has admitted."""
        selector = {"labelSelector": "kueue.x-k8s.io/podset"}
        return self._client.items("/api/v1/pods", "listing pods", selector)

    def secret(self, namespace: str, name: str, key: str) -> str:
        """One value of a Secret; errors never repeat it."""
        what = f"Secret {namespace}/{name}"
        data = self._client.get(f"/api/v1/namespaces/{namespace}/secrets/{name}", what)
        value = (data.get("data") or {}).get(key)
        if value is None:
            raise Missing(what, f"has no key {key}")
        try:
            return base64.b64decode(value, validate=True).decode().strip()
        except ValueError:
            raise Rejected(what, f"{key} is not text") from None

    # --- writing --------------------------------------------------------------------------------

    def apply(self, plural: str, body: Json, *, dry_run: bool = False) -> Json:
        """Have an object say what the body does, and no longer what an earlier body of ours did.

        Returns what it is then.
        """
        name = body["metadata"]["name"]
        query = {"fieldManager": PROGRAM, "force": "true"}
        query.update({"dryRun": "All"} if dry_run else {})
        path = with_query(f"/apis/{body['apiVersion']}/{plural}/{name}", query)
        return self._write("PATCH", path, f"{body['kind']} {name}", body, APPLY_PATCH)

    def delete(self, plural: str, version: str, item: Mapping[str, Any]) -> None:
        """Delete the object that was seen, and no other that has its name by now."""
        metadata = item["metadata"]
        body = {"preconditions": {"uid": metadata["uid"]}, "propagationPolicy": "Background"}
        path = f"/apis/{KUEUE}/{version}/{plural}/{metadata['name']}"
        with contextlib.suppress(Missing):
            self._write("DELETE", path, f"deleting {plural}/{metadata['name']}", body)

    def write_status(self, name: str, status: Json, resource_version: str) -> None:
        """The status of a MasterQueue, unless it has changed meanwhile."""
        path = f"/apis/{GROUP}/{VERSION}/{PLURAL}/{name}/status"
        body = {"metadata": {"resourceVersion": resource_version}, "status": status}
        self._write("PATCH", path, f"status of MasterQueue {name}", body, MERGE_PATCH)

    def patch_workload(self, version: str, namespace: str, name: str, body: Json) -> None:
        """Change single fields of a Workload."""
        path = f"/apis/{KUEUE}/{version}/namespaces/{namespace}/{WORKLOADS}/{name}"
        self._write("PATCH", path, f"Workload {namespace}/{name}", body, MERGE_PATCH)

    def write_event(self, body: Json) -> None:
        """An Event; those of a MasterQueue, which has no namespace, go into default."""
        self._write("POST", "/api/v1/namespaces/default/events", "writing an Event", body)

    # --- the lease ------------------------------------------------------------------------------

    def lease(self, namespace: str, name: str) -> Optional[Json]:
        """The Lease, or None if there is none."""
        try:
            return self._client.get(f"{_leases(namespace)}/{name}", f"Lease {namespace}/{name}")
        except Missing:
            return None

    def write_lease(self, namespace: str, name: str, body: Json) -> None:
        """Make it, or change exactly the one that was read."""
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
    404: Missing,
    409: Conflicting,
    400: Rejected,
    422: Rejected,
}


def _leases(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


def _error_of(failure: Failure) -> ClusterError:
    """By the status, and in the API server's own words."""
    what, status, reason, _ = failure
    if status == OK:
        return ClusterError(what, reason)
    if "admission webhook" in reason and "denied the request" in reason:
        return Rejected(what, reason)
    return _KINDS.get(status, Unreachable)(what, reason)
