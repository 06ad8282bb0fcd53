"""The edge to Kubernetes: the only module that imports its client, and knows how calls fail.

The client finds the cluster, its credentials (renewed as they run out) and TLS; the few calls that
we need are made on its connections, with JSON in and JSON out: its own objects cost more than they
tell, and know no MasterQueue.
"""

from __future__ import annotations

import base64
import contextlib
import json
import urllib.parse
from collections.abc import Mapping
from typing import Any, Optional

import urllib3
import yaml
from kubernetes import client, config

from kueue_nats.errors import (
    ClusterError,
    Conflicting,
    Missing,
    NotAllowed,
    Rejected,
    Unreachable,
)
from kueue_nats.kueue_objects import KUEUE, NEW, OLD, WORKLOADS
from kueue_nats.model import GROUP, PLURAL, VERSION
from kueue_nats.settings import PROGRAM
from templates.api_refusals import why
from templates.errors import ConfigError, one_line

TIMEOUT = urllib3.Timeout(connect=3, read=10)
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
PLAIN = "application/json"

Json = dict[str, Any]


def connect(kubeconfig: str) -> Cluster:
    """The cluster that a kubeconfig names; without one, that of the pod we run in."""
    settings = client.Configuration()
    try:
        if kubeconfig:
            config.load_kube_config(kubeconfig, client_configuration=settings)
        else:
            config.load_incluster_config(client_configuration=settings)
    except (config.ConfigException, yaml.YAMLError, OSError, ValueError, TypeError) as error:
        where = kubeconfig or "kubeconfig"
        raise ConfigError(where, one_line(str(error)).removeprefix(f"{where}: ")) from None
    return Cluster(client.ApiClient(settings))


class Cluster:
    """Reads and writes, one call each; whatever fails is a ``ClusterError``."""

    def __init__(self, api: client.ApiClient) -> None:
        self._settings = api.configuration
        self._pool = api.rest_client.pool_manager
        self.writes = 0

    # --- reading --------------------------------------------------------------------------------

    def kueue_version(self) -> str:
        """The newest version of Kueue's API that is served and that we speak."""
        groups = self._call("GET", "/apis", what="finding out the version of Kueue's API")["groups"]
        versions = [v["version"] for g in groups if g["name"] == KUEUE for v in g["versions"]]
        for version in (NEW, OLD):
            if version in versions:
                return version
        raise Missing(
            "Kueue", f"the cluster serves neither {NEW} nor {OLD} of it: is it installed?"
        )

    def masters(self) -> list[Json]:
        """Every MasterQueue."""
        return self._items(f"/apis/{GROUP}/{VERSION}/{PLURAL}", f"listing {PLURAL}.{GROUP}")

    def listed(self, plural: str, version: str) -> dict[str, Json]:
        """Every object of one of Kueue's kinds that belong to no namespace, by name."""
        items = self._items(f"/apis/{KUEUE}/{version}/{plural}", f"listing {plural}.{KUEUE}")
        return {item["metadata"]["name"]: item for item in items}

    def workloads(self, version: str) -> list[Json]:
        """Every Workload."""
        return self._items(f"/apis/{KUEUE}/{version}/{WORKLOADS}", f"listing {WORKLOADS}.{KUEUE}")

    def pods_of_jobs(self) -> list[Json]:
        """Every pod that Kueue has admitted."""
        selector = urllib.parse.urlencode({"labelSelector": "kueue.x-k8s.io/podset"})
        return self._items(f"/api/v1/pods?{selector}", "listing pods")

    def secret(self, namespace: str, name: str, key: str) -> str:
        """One value of a Secret; errors never repeat it."""
        what = f"Secret {namespace}/{name}"
        data = self._call("GET", f"/api/v1/namespaces/{namespace}/secrets/{name}", what=what)
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
        path = f"/apis/{body['apiVersion']}/{plural}/{name}?{urllib.parse.urlencode(query)}"
        return self._write("PATCH", path, body, APPLY, what=f"{body['kind']} {name}")

    def delete(self, plural: str, version: str, item: Mapping[str, Any]) -> None:
        """Delete the object that was seen, and no other that has its name by now."""
        metadata = item["metadata"]
        body = {"preconditions": {"uid": metadata["uid"]}, "propagationPolicy": "Background"}
        path = f"/apis/{KUEUE}/{version}/{plural}/{metadata['name']}"
        with contextlib.suppress(Missing):
            self._write("DELETE", path, body, what=f"deleting {plural}/{metadata['name']}")

    def write_status(self, name: str, status: Json, resource_version: str) -> None:
        """The status of a MasterQueue, unless it has changed meanwhile."""
        path = f"/apis/{GROUP}/{VERSION}/{PLURAL}/{name}/status"
        body = {"metadata": {"resourceVersion": resource_version}, "status": status}
        self._write("PATCH", path, body, MERGE, what=f"status of MasterQueue {name}")

    def patch_workload(self, version: str, namespace: str, name: str, body: Json) -> None:
        """Change single fields of a Workload."""
        path = f"/apis/{KUEUE}/{version}/namespaces/{namespace}/{WORKLOADS}/{name}"
        self._write("PATCH", path, body, MERGE, what=f"Workload {namespace}/{name}")

    def write_event(self, body: Json) -> None:
        """An Event; those of a MasterQueue, which has no namespace, go into default."""
        self._write("POST", "/api/v1/namespaces/default/events", body, what="writing an Event")

    # --- the lease ------------------------------------------------------------------------------

    def lease(self, namespace: str, name: str) -> Optional[Json]:
        """The Lease, or None if there is none."""
        try:
            return self._call(
                "GET", f"{_leases(namespace)}/{name}", what=f"Lease {namespace}/{name}"
            )
        except Missing:
            return None

    def write_lease(self, namespace: str, name: str, body: Json) -> None:
        """Make it, or change exactly the one that was read."""
        what, path = f"Lease {namespace}/{name}", _leases(namespace)
        if "resourceVersion" in body["metadata"]:
            self._call("PUT", f"{path}/{name}", body, what=what)
        else:
            self._call("POST", path, body, what=what)

    # --- calls ----------------------------------------------------------------------------------

    def _items(self, path: str, what: str) -> list[Json]:
        items: list[Json] = self._call("GET", path, what=what)["items"]
        return items

    def _write(self, method: str, path: str, body: Any, kind: str = PLAIN, *, what: str) -> Json:
        self.writes += 1
        return self._call(method, path, body, kind, what=what)

    def _call(
        self, method: str, path: str, body: Any = None, kind: str = PLAIN, *, what: str
    ) -> Json:
        headers = {"Accept": PLAIN, "Content-Type": kind, "User-Agent": PROGRAM}
        try:
            for entry in self._settings.auth_settings().values():
                if entry.get("value"):
                    headers[entry["key"]] = entry["value"]
            answer = self._pool.request(
                method,
                self._settings.host + path,
                body=None if body is None else json.dumps(body).encode(),
                headers=headers,
                timeout=TIMEOUT,
                retries=False,
            )
        except (urllib3.exceptions.HTTPError, OSError, config.ConfigException) as error:
            raise Unreachable(what, one_line(str(error))) from None
        if answer.status >= 300:
            raise _failure(what, answer.status, answer.data)
        try:
            found = json.loads(answer.data)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ClusterError(what, "the answer is no JSON object")
        return found


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


def _failure(what: str, status: int, data: bytes) -> ClusterError:
    """By the status, and in the API server's own words."""
    words = why(status, data)
    if "admission webhook" in words and "denied the request" in words:
        return Rejected(what, words)
    return _KINDS.get(status, Unreachable)(what, words)
