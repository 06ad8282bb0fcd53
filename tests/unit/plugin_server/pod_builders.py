"""Pods as interLink sends them, and states as sites report them."""

from __future__ import annotations

import json
import uuid
from typing import Any

from templates.common.names import job_name
from templates.job.records import ContainerState
from templates.job.status import ContainerStatus, JobStatus, Version
from templates.pod.model import INIT, MAIN, SIDECAR

NAME = "train-0"
NO_TIME = "0001-01-01T00:00:00Z"
ZEROS = {
    "Tail": 0,
    "Bytes": 0,
    "Timestamps": False,
    "Follow": False,
    "Previous": False,
    "SinceSeconds": 0,
    "SinceTime": NO_TIME,
}


def pod(
    uid: str = "", pool: str = "slurm-a", name: str = NAME, adopted: bool = False, **spec: Any
) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": "team-a",
        "uid": uid or str(uuid.uuid4()),
    }
    if adopted:
        metadata["annotations"] = {"JobID": job_name(name, metadata["uid"])}
    spec = {
        "containers": [{"name": "main", "image": "busybox", "command": ["true"]}],
        "restartPolicy": "Never",
        **spec,
    }
    if pool:
        spec["tolerations"] = [{"key": "pool.vk.io", "value": pool, "effect": "NoSchedule"}]
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def create_request(raw: dict[str, Any]) -> dict[str, Any]:
    nothing = {"configMaps": None, "projectedvolumemaps": None, "secrets": None, "emptyDirs": None}
    spec = raw["spec"]
    containers = [*spec.get("initContainers", ()), *spec["containers"]]
    contents = [{"name": container["name"], **nothing} for container in containers]
    return {"pod": raw, "container": contents, "jobConfig": {}}


def log_request(raw: dict[str, Any], container: str = "main", **options: Any) -> str:
    """The question for a container's log; options in interLink's words."""
    metadata = raw["metadata"]
    found = {
        "Namespace": metadata["namespace"],
        "PodUID": metadata["uid"],
        "PodName": metadata["name"],
        "ContainerName": container,
        "Opts": {**ZEROS, **options},
    }
    return json.dumps(found)


def job_of(raw: dict[str, Any]) -> str:
    return job_name(raw["metadata"]["name"], raw["metadata"]["uid"])


def status(raw: dict[str, Any], phase: str = "started", **changes: Any) -> JobStatus:
    """The status of a pod's job; its containers as in the spec, unless said."""
    phases = ("accepted", "queued", "started", "ended")
    found = JobStatus(
        job=job_of(raw),
        uid=raw["metadata"]["uid"],
        namespace=raw["metadata"]["namespace"],
        pod=raw["metadata"]["name"],
        version=Version(0, phases.index(phase), 0),
        phase=phase,
        native="",
        node="",
        reason="",
        message="",
        started_ms=0,
        finished_ms=0,
        exit_code=0,
        deleting=False,
        containers=containers(raw),
    )
    return found._replace(**changes)


def containers(raw: dict[str, Any], **states: ContainerState) -> tuple[ContainerStatus, ...]:
    """All containers of a pod; by default they wait."""
    found = []
    for key, kind in (("initContainers", INIT), ("containers", MAIN)):
        for listed in raw["spec"].get(key, ()):
            sidecar = kind == INIT and listed.get("restartPolicy") == "Always"
            state = states.get(listed["name"].replace("-", "_")) or ContainerState("")
            found.append(
                ContainerStatus(
                    SIDECAR if sidecar else kind,
                    listed.get("image", ""),
                    state._replace(name=listed["name"]),
                )
            )
    return tuple(found)
