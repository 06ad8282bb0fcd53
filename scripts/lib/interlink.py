"""The requests of interLink's virtual kubelet and API server, for trying a plugin without them."""

from __future__ import annotations

import base64
import contextlib
import copy
import http.client
import itertools
import json
import socket
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Optional

from templates.common.yaml_loader import load_documents
from templates.pod.model import Pod
from templates.pod.user_manifests import read_manifests

LONGEST_CREATE_S = 120  # interLink gives up then


class Answer(Exception):
    """The plugin answered something else than 200; the text is what ``kubectl describe`` shows."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status
        self.text = text


class Plugin:
    """A plugin's HTTP interface, over one connection that is kept."""

    def __init__(self, host: str, port: int, timeout_s: float = LONGEST_CREATE_S) -> None:
        self._address = (host, port, timeout_s)
        self._connection: Optional[http.client.HTTPConnection] = None

    def __enter__(self) -> Plugin:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def create(self, request: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._call("POST", "/create", request))
        return answer

    def delete(self, pod: dict[str, Any]) -> bytes:
        return self._call("POST", "/delete", pod)

    def status(self, pods: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        answer: list[dict[str, Any]] = json.loads(self._call("GET", "/status", list(pods)))
        return answer

    def ping(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._call("GET", "/status", []))
        return answer

    def logs(self, pod: dict[str, Any], container: str, **options: Any) -> Iterator[bytes]:
        """The log as it comes; with ``Follow`` until the container has ended."""
        request = log_request(pod, container, **options)
        host, port, timeout_s = self._address
        connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
        try:
            connection.request("GET", "/getLogs", json.dumps(request), _headers("GetLogs"))
            response = connection.getresponse()
            if response.status != 200:
                raise Answer(response.status, response.read().decode(errors="replace"))
            while piece := response.read1(65536):
                yield piece
        finally:
            connection.close()

    def get(self, path: str) -> bytes:
        return self._call("GET", path, None)

    def _call(self, method: str, path: str, body: Any) -> bytes:
        if self._connection is None:
            host, port, timeout_s = self._address
            self._connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
        try:
            self._connection.request(
                method, path, None if body is None else json.dumps(body), _headers(path[1:])
            )
            response = self._connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException):
            self.close()
            raise
        if response.status != 200:
            raise Answer(response.status, text.decode(errors="replace"))
        return text

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def log_request(pod: dict[str, Any], container: str, **options: Any) -> dict[str, Any]:
    """Return the query with which interLink requests a container's log."""
    metadata = pod["metadata"]
    nothing = {"Tail": 0, "Bytes": 0, "Timestamps": False, "Follow": False, "Previous": False}
    since = {"SinceSeconds": 0, "SinceTime": "0001-01-01T00:00:00Z"}
    return {
        "Namespace": metadata["namespace"],
        "PodUID": metadata["uid"],
        "PodName": metadata["name"],
        "ContainerName": container,
        "Opts": {**nothing, **since, **options},
    }


_sessions = itertools.count(1)


def _headers(operation: str) -> dict[str, str]:
    session = f"{operation}#{next(_sessions)}"
    return {"Content-Type": "application/json", "InterLink-Http-Session": session}


def is_up(host: str, port: int) -> bool:
    """Return whether somebody listens there."""
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


def free_ports(count: int) -> list[int]:
    """Return different ports of this machine that nobody listens on."""
    with contextlib.ExitStack() as open_ones:
        listeners = [open_ones.enter_context(socket.socket()) for _ in range(count)]
        for listener in listeners:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in listeners]


def free_port() -> int:
    """Return one."""
    return free_ports(1)[0]


# --- the request of a pod -----------------------------------------------------------------------


def create_request(texts: Sequence[tuple[str, str]], pool: str = "") -> dict[str, Any]:
    """Return the create request for manifests: variables resolved, ConfigMaps and Secrets sent.

    Each call makes a new pod, as each creation in a cluster does.
    """
    pod = read_manifests(texts)
    documents = [d for name, text in texts for d in load_documents(name, text)]
    raw = next(d for d in documents if d["kind"] in ("Pod", "Job"))
    spec = copy.deepcopy(raw["spec"] if raw["kind"] == "Pod" else raw["spec"]["template"]["spec"])
    containers = [*spec.get("initContainers", []), *spec["containers"]]
    for container, resolved in zip(containers, pod.containers):
        container.pop("envFrom", None)
        container["env"] = [{"name": name, "value": value} for name, value in resolved.env]
    if pool:
        toleration = {
            "key": "pool.vk.io",
            "operator": "Equal",
            "value": pool,
            "effect": "NoSchedule",
        }
        spec.setdefault("tolerations", []).append(toleration)
    metadata = {
        "name": pod.name,
        "namespace": pod.namespace,
        "uid": str(uuid.uuid4()),
        "labels": dict(pod.labels),
        "annotations": dict(pod.annotations),
    }
    contents = [_contents(container, spec, documents, pod) for container in containers]
    body = {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}
    return {"pod": body, "container": contents, "jobConfig": {}}


def _contents(
    container: dict[str, Any], spec: dict[str, Any], documents: list[Any], pod: Pod
) -> dict[str, Any]:
    mounted = {mount["name"] for mount in container.get("volumeMounts", [])}
    volumes = [volume for volume in spec.get("volumes", []) if volume["name"] in mounted]
    config_maps = [v["configMap"]["name"] for v in volumes if "configMap" in v]
    secrets = [v["secret"]["secretName"] for v in volumes if "secret" in v]
    return {
        "name": container["name"],
        "configMaps": _named(documents, "ConfigMap", config_maps, pod.namespace),
        "secrets": _named(documents, "Secret", secrets, pod.namespace),
        "projectedvolumemaps": _projected(volumes, documents),
        "emptyDirs": None,
    }


def _named(
    documents: list[Any], kind: str, names: list[str], namespace: str
) -> Optional[list[Any]]:
    found = []
    for document in documents:
        if document["kind"] == kind and document["metadata"]["name"] in names:
            document = copy.deepcopy(document)
            document["metadata"]["namespace"] = namespace
            texts = document.pop("stringData", {})
            if texts:
                encoded = {k: base64.b64encode(v.encode()).decode() for k, v in texts.items()}
                document["data"] = {**document.get("data", {}), **encoded}
            found.append(document)
    return found or None


def _projected(volumes: list[dict[str, Any]], documents: list[Any]) -> Optional[list[Any]]:
    """Of projected volumes, what interLink sends: tokens, and the keys of ConfigMaps."""
    found = []
    for volume in volumes:
        data: dict[str, str] = {}
        for source in volume.get("projected", {}).get("sources", []):
            if "serviceAccountToken" in source:
                data[source["serviceAccountToken"]["path"]] = "header.claims.signature"
            if "configMap" in source:
                data.update(_projected_config_map(source["configMap"], documents))
        if data:
            found.append(
                {"metadata": {"name": volume["name"], "creationTimestamp": None}, "data": data}
            )
    return found or None


def _projected_config_map(source: dict[str, Any], documents: list[Any]) -> dict[str, str]:
    named = [
        d for d in documents if d["kind"] == "ConfigMap" and d["metadata"]["name"] == source["name"]
    ]
    content = named[0].get("data", {}) if named else {}
    items = source.get("items")
    if items is None:
        return dict(content)
    return {item["path"]: content[item["key"]] for item in items if item["key"] in content}
