"""A pod's metadata and spec: from Kubernetes' JSON to a checked ``Pod``.

Both ways in (``request.py`` and ``manifests.py``) end here. What Kubernetes would default is
defaulted, what it would refuse is refused, and fields that mean nothing to a job are passed over.
The text was checked for NUL and lone surrogates before (``fields.check_texts``).
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, NamedTuple, Optional

from templates.common.constants import LOCAL_CONTAINERS, LOCAL_INIT_CONTAINERS
from templates.common.errors import PodRejected
from templates.common.names import LABEL_RULE, SUBDOMAIN_RULE, check_uid, is_label, is_subdomain
from templates.common.quantity import quantities_at
from templates.common.validation import (
    flag_at,
    list_at,
    number_at,
    object_at,
    objects_at,
    one_of,
    text_at,
    text_map_at,
    texts_at,
    wrong,
)
from templates.pod.containers import Surroundings, check_pod_security, read_container
from templates.pod.model import INIT, MAIN, SIDECAR, Container, Content, Pod, Volume
from templates.pod.variables import Context, VariableReader

_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_EXTRAS = frozenset(
    (
        "activeDeadlineSeconds",
        "hostAliases",
        "hostIPC",
        "hostNetwork",
        "hostPID",
        "imagePullSecrets",
        "os",
        "overhead",
        "resourceClaims",
        "resources",
    )
)
# What the pod's securityContext may say that is handed on to another cluster as it is.
_FOR_CLUSTERS = ("fsGroup", "fsGroupChangePolicy", "seccompProfile", "supplementalGroups")
_TOLERATION_TEXTS = ("key", "operator", "value", "effect")


class Identity(NamedTuple):
    """What the downward API can tell of a pod; known before its containers are read."""

    name: str
    namespace: str
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    node_name: str
    service_account: str


class Source(NamedTuple):
    """What comes with a pod, and how its variables are to be read."""

    variables: VariableReader
    config_maps: Mapping[str, Content] = {}
    secrets: Mapping[str, Content] = {}
    projected: Mapping[str, Mapping[str, bytes]] = {}
    readable_config_maps: Optional[Mapping[str, Content]] = None  # for variables; None: the same
    job_script: str = ""
    job_config: dict[str, object] = {}


def read_pod(pod: dict[str, Any], where: str, source: Source) -> Pod:
    """The checked pod; ``where`` is its path for complaints."""
    place = f"{where}.spec"
    spec = object_at(pod, "spec", where)
    identity = _read_identity(pod, spec, where)
    volumes = _read_volumes(spec, place)
    readable = source.readable_config_maps
    if readable is None:
        readable = source.config_maps
    context = Context(identity, spec, place, readable, source.secrets)
    names = {volume.name for volume in volumes}
    security = check_pod_security(spec, place)
    surroundings = Surroundings(names, security, source.variables, context)
    grace_period_s = number_at(spec, "terminationGracePeriodSeconds", place)
    name, namespace, uid, labels, annotations, node_name, service_account = identity
    checked = Pod(
        name,
        namespace,
        uid,
        labels,
        annotations,
        _read_containers(spec, place, annotations, surroundings),
        volumes,
        _restart_policy(spec, place),
        30 if grace_period_s is None else grace_period_s,
        node_name=node_name,
        service_account=service_account,
        hostname=_hostname(spec, place, name),
        security={key: security[key] for key in _FOR_CLUSTERS if key in security},
        tolerations=_tolerations(spec, place),
        config_maps=source.config_maps,
        secrets=source.secrets,
        projected=source.projected,
        job_script=source.job_script,
        job_config=source.job_config,
    )
    return checked if _EXTRAS.isdisjoint(spec) else checked._replace(**_read_extras(spec, place))


def _read_extras(spec: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The fields that few pods have, by the name of their field of ``Pod``."""
    _refuse(spec, where)
    extras: dict[str, Any] = {}
    resources = object_at(spec, "resources", where)
    extras["requests"] = quantities_at(resources, "requests", f"{where}.resources")
    extras["limits"] = quantities_at(resources, "limits", f"{where}.resources")
    extras["overhead"] = quantities_at(spec, "overhead", where)
    extras["deadline_s"] = _deadline(spec, where)
    extras["host_aliases"] = _host_aliases(spec, where)
    extras["pull_secrets"] = _pull_secrets(spec, where)
    extras["host_network"] = flag_at(spec, "hostNetwork", where) or False
    extras["host_pid"] = flag_at(spec, "hostPID", where) or False
    extras["host_ipc"] = flag_at(spec, "hostIPC", where) or False
    return extras


def _refuse(spec: Mapping[str, Any], where: str) -> None:
    """What a pod cannot do without and no job has: to run it all the same would be a lie."""
    if list_at(spec, "resourceClaims", where):
        raise PodRejected(
            f"{where}.resourceClaims", "not supported; ask for devices by resources.limits"
        )
    system = text_at(object_at(spec, "os", where), "name", f"{where}.os")
    if system not in ("", "linux"):
        raise PodRejected(f"{where}.os.name", f"must be linux, not '{system[:80]}'")


def _deadline(spec: Mapping[str, Any], where: str) -> Optional[int]:
    deadline = number_at(spec, "activeDeadlineSeconds", where)
    if deadline == 0:
        raise PodRejected(f"{where}.activeDeadlineSeconds", "must be at least 1")
    return deadline


def _read_identity(pod: Mapping[str, Any], spec: Mapping[str, Any], where: str) -> Identity:
    metadata = object_at(pod, "metadata", where)
    place = f"{where}.metadata"
    name = text_at(metadata, "name", place)
    if not is_subdomain(name):
        raise PodRejected(f"{place}.name", SUBDOMAIN_RULE)
    namespace = text_at(metadata, "namespace", place)
    if not is_label(namespace):
        raise PodRejected(f"{place}.namespace", LABEL_RULE)
    account = text_at(spec, "serviceAccountName", f"{where}.spec")
    return Identity(
        name,
        namespace,
        check_uid(f"{place}.uid", metadata.get("uid")),
        text_map_at(metadata, "labels", place),
        text_map_at(metadata, "annotations", place),
        text_at(spec, "nodeName", f"{where}.spec"),
        account or text_at(spec, "serviceAccount", f"{where}.spec") or "default",
    )


def _read_containers(
    spec: Mapping[str, Any], where: str, annotations: Mapping[str, str], pod: Surroundings
) -> tuple[Container, ...]:
    """All containers that are to run here, init containers first."""
    names = set()
    found: list[Container] = []
    mains = objects_at(spec, "containers", where)
    inits = objects_at(spec, "initContainers", where) if "initContainers" in spec else []
    for key, raws in (("initContainers", inits), ("containers", mains)):
        local = _local_names(annotations, key) if annotations else ()
        for index, raw in enumerate(raws):
            place = f"{where}.{key}[{index}]"
            name = raw.get("name")
            if type(name) is not str or not is_label(name):
                raise PodRejected(f"{place}.name", LABEL_RULE)
            if name in names:
                raise PodRejected(f"{place}.name", f"another container is named '{name}'")
            names.add(name)
            if name not in local:
                kind = _kind(raw, key, place)
                found.append(read_container(raw, name, kind, place, pod))
    if not found or found[-1].kind != MAIN:
        raise PodRejected(f"{where}.containers", "must have a container that is to run here")
    return tuple(found)


def _local_names(annotations: Mapping[str, str], key: str) -> frozenset[str]:
    """The containers that interLink runs in the cluster itself, so that they must not run here."""
    names = annotations.get(LOCAL_CONTAINERS if key == "containers" else LOCAL_INIT_CONTAINERS)
    return frozenset(name.strip() for name in names.split(",")) if names else frozenset()


def _kind(raw: Mapping[str, Any], key: str, where: str) -> str:
    policy = raw.get("restartPolicy")
    if policy is None or policy == "":
        return MAIN if key == "containers" else INIT
    if key == "containers":
        raise PodRejected(f"{where}.restartPolicy", "only the pod and init containers may have one")
    if policy != "Always":
        raise PodRejected(f"{where}.restartPolicy", "must be Always or absent on an init container")
    return SIDECAR


def _read_volumes(spec: Mapping[str, Any], where: str) -> tuple[Volume, ...]:
    volumes: dict[str, Volume] = {}
    for index, raw in enumerate(list_at(spec, "volumes", where)):
        if type(raw) is not dict:
            raise wrong(f"{where}.volumes[{index}]", "an object", raw)
        name = raw.get("name")
        if type(name) is not str or not is_label(name):
            raise PodRejected(f"{where}.volumes[{index}].name", LABEL_RULE)
        if name in volumes:
            raise PodRejected(f"{where}.volumes[{index}].name", f"another volume is named '{name}'")
        volumes[name] = _read_volume(raw, name, where, index)
    return tuple(volumes.values())


def _read_volume(raw: Mapping[str, Any], name: str, where: str, index: int) -> Volume:
    """A volume without any source is an emptyDir, as the API server has it."""
    kind = "emptyDir"
    source: object = None
    for key, value in raw.items():
        if key != "name" and value is not None:
            if source is not None:
                raise PodRejected(f"{where}.volumes[{index}]", f"is both {kind} and {key}")
            kind, source = key, value
    if source is None:
        return Volume(name, kind, {})
    if type(source) is not dict:
        raise wrong(f"{where}.volumes[{index}].{kind}", "an object", source)
    return Volume(name, kind, source)


def _restart_policy(spec: Mapping[str, Any], where: str) -> str:
    policy = text_at(spec, "restartPolicy", where) or "Always"
    if policy not in _RESTART_POLICIES:
        raise one_of(f"{where}.restartPolicy", _RESTART_POLICIES, policy)
    return policy


def _hostname(spec: Mapping[str, Any], where: str, pod_name: str) -> str:
    """Return the pod's host name: its own, else what fits of its name."""
    hostname = text_at(spec, "hostname", where)
    if not hostname:
        return pod_name[:63].rstrip("-.")
    if not is_label(hostname):
        raise PodRejected(f"{where}.hostname", LABEL_RULE)
    return hostname


def _host_aliases(spec: Mapping[str, Any], where: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    aliases: list[tuple[str, tuple[str, ...]]] = []
    for index, raw in enumerate(objects_at(spec, "hostAliases", where)):
        place = f"{where}.hostAliases[{index}]"
        ip = text_at(raw, "ip", place)
        try:
            ip_address(ip)
        except ValueError:
            raise PodRejected(f"{place}.ip", "must be an IP address") from None
        names = texts_at(raw, "hostnames", place)
        for position, name in enumerate(names):
            if not is_subdomain(name):
                raise PodRejected(f"{place}.hostnames[{position}]", SUBDOMAIN_RULE)
        aliases.append((ip, tuple(names)))
    return tuple(aliases)


def _tolerations(spec: Mapping[str, Any], where: str) -> tuple[Mapping[str, object], ...]:
    tolerations = list_at(spec, "tolerations", where)
    for index, toleration in enumerate(tolerations):
        if type(toleration) is not dict:
            raise wrong(f"{where}.tolerations[{index}]", "an object", toleration)
        for key in _TOLERATION_TEXTS:
            if key in toleration and type(toleration[key]) is not str:
                text_at(toleration, key, f"{where}.tolerations[{index}]")  # refuses all but null
    return tuple(tolerations)


def _pull_secrets(spec: Mapping[str, Any], where: str) -> tuple[str, ...]:
    names = [
        text_at(raw, "name", f"{where}.imagePullSecrets[{index}]")
        for index, raw in enumerate(objects_at(spec, "imagePullSecrets", where))
    ]
    return tuple(name for name in names if name)
