"""The pods in the bodies of status and delete requests: the few fields that matter, checked.

They carry the virtual kubelet's own copy of a pod, with values in clear; nothing is kept of it but
what stands here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

from plugin_server.common.errors import Malformed
from templates.common.constants import JOB_ID, POOL_ANNOTATION, POOL_TOLERATION
from templates.common.errors import PodRejected
from templates.common.json_codec import load_json
from templates.common.names import check_token, check_uid, pool_of_value
from templates.common.validation import number_at, object_at, objects_at, text_at, text_map_at


class Listed(NamedTuple):
    """A container of the pod's spec."""

    name: str
    image: str
    sidecar: bool


class Shown(NamedTuple):
    """What the virtual kubelet says of a container already."""

    state: str  # the key below "state": waiting, running, terminated, or nothing
    exit_code: int
    started_at: str
    finished_at: str
    message: str


NOTHING = Shown("", 0, "", "", "")


class Asked(NamedTuple):
    """A pod whose status is asked for, or that is to be deleted."""

    uid: str
    name: str
    namespace: str
    adopted: bool  # the virtual kubelet has had an answer to a create of it
    deleting: bool
    pool: str  # that it names; empty if it names none, or what cannot be one
    restart_policy: str
    inits: tuple[Listed, ...]
    mains: tuple[Listed, ...]
    shown: tuple[tuple[str, Shown], ...]  # by name of container

    @property
    def shown_of(self) -> dict[str, Shown]:
        """What is shown of each container."""
        return dict(self.shown)


def decode(body: bytes) -> Any:
    """The JSON of a request."""
    try:
        return load_json(body)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"the request is not JSON: {error}") from None


def read(raw: object, where: str = "pod") -> Asked:
    """The pod; raises ``Malformed`` with one line."""
    if type(raw) is not dict:
        raise Malformed(f"{where}: must be an object")
    try:
        return _read(raw, where)
    except PodRejected as error:
        raise Malformed(str(error)) from None


def _read(raw: Mapping[str, Any], where: str) -> Asked:
    metadata, spec = object_at(raw, "metadata", where), object_at(raw, "spec", where)
    annotations = text_map_at(metadata, "annotations", f"{where}.metadata")
    status = object_at(raw, "status", where)
    tolerations = objects_at(spec, "tolerations", f"{where}.spec")
    return Asked(
        uid=check_uid(f"{where}.metadata.uid", metadata.get("uid")),
        name=text_at(metadata, "name", f"{where}.metadata"),
        namespace=text_at(metadata, "namespace", f"{where}.metadata"),
        adopted=JOB_ID in annotations,
        deleting=bool(metadata.get("deletionTimestamp")),
        pool=_pool(tolerations, annotations),
        restart_policy=text_at(spec, "restartPolicy", f"{where}.spec", "Always"),
        inits=_listed(spec, "initContainers", where),
        mains=_listed(spec, "containers", where),
        shown=(
            *_shown(status, "initContainerStatuses", where),
            *_mains_shown(status, where),
        ),
    )


def named_pool(tolerations: Any, annotations: Mapping[str, str]) -> str:
    """The pool that a pod asks for by its toleration, else by its annotation; or none."""
    for toleration in tolerations:
        if toleration.get("key") == POOL_TOLERATION and toleration.get("value"):
            return pool_of_value(toleration["value"], f"toleration {POOL_TOLERATION}")
    if annotations.get(POOL_ANNOTATION):
        return check_token(f"annotation {POOL_ANNOTATION}", annotations[POOL_ANNOTATION])
    return ""


def _pool(tolerations: Any, annotations: Mapping[str, str]) -> str:
    """A pod that names what cannot be a pool was refused, and is asked for all the same."""
    try:
        return named_pool(tolerations, annotations)
    except PodRejected:
        return ""


def grace_period(raw: Mapping[str, Any]) -> Optional[int]:
    """What a delete says about the time between TERM and KILL; None: nothing."""
    metadata = raw.get("metadata")
    try:
        return number_at(metadata, "deletionGracePeriodSeconds", "pod") if metadata else None
    except PodRejected:
        return None


def _listed(spec: Mapping[str, Any], key: str, where: str) -> tuple[Listed, ...]:
    if spec.get(key) is None:
        return ()
    place = f"{where}.spec.{key}"
    return tuple(
        Listed(
            text_at(entry, "name", place),
            text_at(entry, "image", place),
            entry.get("restartPolicy") == "Always",
        )
        for entry in objects_at(spec, key, f"{where}.spec")
    )


def _shown(status: Mapping[str, Any], key: str, where: str) -> list[tuple[str, Shown]]:
    if not status.get(key):
        return []
    place = f"{where}.status.{key}"
    return [
        (text_at(entry, "name", place), _state(object_at(entry, "state", place), place))
        for entry in objects_at(status, key, f"{where}.status")
    ]


def _mains_shown(status: Mapping[str, Any], where: str) -> list[tuple[str, Shown]]:
    """What it says of main containers, but for what it has made up.

    Before 0.6 they run as soon as it has sent the pod, which is Pending; one that we have said to
    run makes the pod Running.
    """
    found = _shown(status, "containerStatuses", where)
    if status.get("phase") != "Pending":
        return found
    return [(name, NOTHING if shown.state == "running" else shown) for name, shown in found]


def _state(state: Mapping[str, Any], where: str) -> Shown:
    """Terminated counts more than waiting, and that more than running, as interLink has it."""
    for kind in ("terminated", "waiting", "running"):
        if type(state.get(kind)) is dict:
            break
    else:
        return NOTHING
    if kind != "terminated":
        return Shown(kind, 0, "", "", "")
    end = state["terminated"]
    code = end.get("exitCode")
    return Shown(
        kind,
        code if type(code) is int else 0,
        text_at(end, "startedAt", where),
        text_at(end, "finishedAt", where),
        text_at(end, "message", where),
    )
