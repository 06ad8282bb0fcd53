"""Pods in the bodies of status and delete requests: the few fields that matter, checked.

The bodies hold the virtual kubelet's own copy of a pod, with secrets in clear; only these fields
are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

from plugin_server.common.errors import Malformed
from templates.common.constants import JOB_ID, POOL_ANNOTATION, POOL_TOLERATION
from templates.common.errors import PodRejected
from templates.common.json_codec import has_more_values, load_json
from templates.common.names import check_token, check_uid, pool_of_value
from templates.common.validation import number_at, object_at, objects_at, text_at, text_map_at

MOST_VALUES = 1_000_000  # of the JSON of a request: thousands of pods


class ContainerSpec(NamedTuple):
    """Container of a pod's spec."""

    name: str
    image: str
    sidecar: bool


class ReportedStatus(NamedTuple):
    """Status of a container that the virtual kubelet has already."""

    state: str  # the key below "state": waiting, running, terminated, or nothing
    exit_code: int
    started_at: str
    finished_at: str
    message: str


NOT_REPORTED = ReportedStatus("", 0, "", "", "")


class RequestedPod(NamedTuple):
    """Pod of a status or delete request."""

    uid: str
    name: str
    namespace: str
    adopted: bool  # the virtual kubelet has received the response to its create
    deleting: bool
    pool: str  # that it names; empty if none, or not valid
    restart_policy: str
    inits: tuple[ContainerSpec, ...]
    mains: tuple[ContainerSpec, ...]
    reported: tuple[tuple[str, ReportedStatus], ...]  # by name of container

    @property
    def reported_by_name(self) -> dict[str, ReportedStatus]:
        """Return the reported status of each container by name."""
        return dict(self.reported)


def decode(body: bytes) -> Any:
    """Return the JSON of a request; raises ``Malformed``."""
    if has_more_values(body, MOST_VALUES):
        raise Malformed(f"the request has more than {MOST_VALUES} values")
    try:
        return load_json(body)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"the request is not JSON: {error}") from None


def read_pod(raw: object, field: str = "pod") -> RequestedPod:
    """Return the pod; raises ``Malformed``."""
    if type(raw) is not dict:
        raise Malformed(f"{field}: must be an object")
    try:
        return _read_pod(raw, field)
    except PodRejected as error:
        raise Malformed(str(error)) from None


def _read_pod(raw: Mapping[str, Any], field: str) -> RequestedPod:
    metadata, spec = object_at(raw, "metadata", field), object_at(raw, "spec", field)
    annotations = text_map_at(metadata, "annotations", f"{field}.metadata")
    status = object_at(raw, "status", field)
    tolerations = objects_at(spec, "tolerations", f"{field}.spec")
    return RequestedPod(
        uid=check_uid(f"{field}.metadata.uid", metadata.get("uid")),
        name=text_at(metadata, "name", f"{field}.metadata"),
        namespace=text_at(metadata, "namespace", f"{field}.metadata"),
        adopted=JOB_ID in annotations,
        deleting=bool(metadata.get("deletionTimestamp")),
        pool=_pool_or_empty(tolerations, annotations),
        restart_policy=text_at(spec, "restartPolicy", f"{field}.spec", "Always"),
        inits=_container_specs(spec, "initContainers", field),
        mains=_container_specs(spec, "containers", field),
        reported=(
            *_reported(status, "initContainerStatuses", field),
            *_reported_mains(status, field),
        ),
    )


def named_pool(tolerations: Any, annotations: Mapping[str, str]) -> str:
    """Return the pool in a pod's toleration, or in its annotation; empty if none."""
    for toleration in tolerations:
        if toleration.get("key") == POOL_TOLERATION and toleration.get("value"):
            return pool_of_value(toleration["value"], f"toleration {POOL_TOLERATION}")
    if annotations.get(POOL_ANNOTATION):
        return check_token(f"annotation {POOL_ANNOTATION}", annotations[POOL_ANNOTATION])
    return ""


def _pool_or_empty(tolerations: Any, annotations: Mapping[str, str]) -> str:
    """Return the pool; empty for a pod that was rejected because its pool is not valid."""
    try:
        return named_pool(tolerations, annotations)
    except PodRejected:
        return ""


def grace_period(raw: Mapping[str, Any]) -> Optional[int]:
    """Return the seconds between TERM and KILL in a delete request; None if not given."""
    metadata = raw.get("metadata")
    try:
        return number_at(metadata, "deletionGracePeriodSeconds", "pod") if metadata else None
    except PodRejected:
        return None


def _container_specs(spec: Mapping[str, Any], key: str, field: str) -> tuple[ContainerSpec, ...]:
    if spec.get(key) is None:
        return ()
    list_field = f"{field}.spec.{key}"
    return tuple(
        ContainerSpec(
            text_at(entry, "name", list_field),
            text_at(entry, "image", list_field),
            entry.get("restartPolicy") == "Always",
        )
        for entry in objects_at(spec, key, f"{field}.spec")
    )


def _reported(status: Mapping[str, Any], key: str, field: str) -> list[tuple[str, ReportedStatus]]:
    if not status.get(key):
        return []
    list_field = f"{field}.status.{key}"
    return [
        (
            text_at(entry, "name", list_field),
            _reported_status(object_at(entry, "state", list_field), list_field),
        )
        for entry in objects_at(status, key, f"{field}.status")
    ]


def _reported_mains(status: Mapping[str, Any], field: str) -> list[tuple[str, ReportedStatus]]:
    """Return the reported statuses of main containers, without those that are made up.

    Before 0.6 they are running as soon as the virtual kubelet has sent the pod, which is Pending; a
    container that we have reported as running makes the pod Running.
    """
    found = _reported(status, "containerStatuses", field)
    if status.get("phase") != "Pending":
        return found
    return [
        (name, NOT_REPORTED if reported.state == "running" else reported)
        for name, reported in found
    ]


def _reported_status(state: Mapping[str, Any], field: str) -> ReportedStatus:
    """Return the reported status; of several states, interLink's order of precedence decides."""
    for kind in ("terminated", "waiting", "running"):
        if type(state.get(kind)) is dict:
            break
    else:
        return NOT_REPORTED
    if kind != "terminated":
        return ReportedStatus(kind, 0, "", "", "")
    end = state["terminated"]
    code = end.get("exitCode")
    return ReportedStatus(
        kind,
        code if type(code) is int else 0,
        text_at(end, "startedAt", field),
        text_at(end, "finishedAt", field),
        text_at(end, "message", field),
    )
