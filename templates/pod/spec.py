"""A pod's metadata and spec: from Kubernetes' JSON to a checked ``Pod``.

``create_request.py`` and ``user_manifests.py`` both end here. What Kubernetes would default is
defaulted, what it would refuse is refused, and fields that mean nothing to a job are passed over.
The text was checked for NUL and lone surrogates before (``validation.check_texts``).
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
    text_at,
    text_map_at,
    texts_at,
    wrong_choice,
    wrong_type,
)
from templates.pod.budget import Budget
from templates.pod.containers import PodScope, check_pod_security, read_container
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
# Fields of the pod's securityContext that are handed on to another cluster as they are.
_FOR_CLUSTERS = ("fsGroup", "fsGroupChangePolicy", "seccompProfile", "supplementalGroups")
_TOLERATION_TEXTS = ("key", "operator", "value", "effect")


class PodIdentity(NamedTuple):
    """Fields of a pod for the downward API, known before its containers are read."""

    name: str
    namespace: str
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    node_name: str
    service_account: str


class PodInputs(NamedTuple):
    """Everything that comes with a pod, and the reader of its variables."""

    variables: VariableReader
    config_maps: Mapping[str, Content] = {}
    secrets: Mapping[str, Content] = {}
    projected: Mapping[str, Mapping[str, bytes]] = {}
    readable_config_maps: Optional[Mapping[str, Content]] = None  # for variables; None: the same
    job_script: str = ""
    job_config: dict[str, object] = {}


def read_pod(pod: dict[str, Any], field: str, inputs: PodInputs) -> Pod:
    """Read and check a pod; ``field`` is its path in error messages."""
    subfield = f"{field}.spec"
    spec = object_at(pod, "spec", field)
    budget = Budget()
    identity = _read_identity(pod, spec, field)
    name, namespace, uid, labels, annotations, node_name, service_account = identity
    volumes = _read_volumes(spec, subfield, budget)
    readable = inputs.readable_config_maps
    if readable is None:
        readable = inputs.config_maps
    context = Context(identity, spec, subfield, readable, inputs.secrets, {}, budget)
    names = {volume.name for volume in volumes}
    security = check_pod_security(spec, subfield)
    scope = PodScope(names, security, inputs.variables, context)
    grace_period_s = number_at(spec, "terminationGracePeriodSeconds", subfield)
    checked = Pod(
        name,
        namespace,
        uid,
        labels,
        annotations,
        _read_containers(spec, subfield, annotations, scope),
        volumes,
        _read_restart_policy(spec, subfield),
        30 if grace_period_s is None else grace_period_s,
        node_name=node_name,
        service_account=service_account,
        hostname=_read_hostname(spec, subfield, name),
        security={key: security[key] for key in _FOR_CLUSTERS if key in security},
        tolerations=_read_tolerations(spec, subfield),
        config_maps=inputs.config_maps,
        secrets=inputs.secrets,
        projected=inputs.projected,
        job_script=inputs.job_script,
        job_config=inputs.job_config,
    )
    if _EXTRAS.isdisjoint(spec):
        return checked
    return checked._replace(**_read_extras(spec, subfield, budget))


def _read_extras(spec: Mapping[str, Any], field: str, budget: Budget) -> dict[str, Any]:
    """Read the fields that few pods have, by the name of their field of ``Pod``."""
    _refuse_unsupported(spec, field)
    extras: dict[str, Any] = {}
    resources = object_at(spec, "resources", field)
    extras["requests"] = quantities_at(resources, "requests", f"{field}.resources")
    extras["limits"] = quantities_at(resources, "limits", f"{field}.resources")
    extras["overhead"] = quantities_at(spec, "overhead", field)
    amounts = (extras["requests"], extras["limits"], extras["overhead"])
    budget.take("resources", sum(map(len, amounts)), field)
    extras["deadline_s"] = _read_deadline(spec, field)
    extras["host_aliases"] = _read_host_aliases(spec, field, budget)
    extras["pull_secrets"] = _read_pull_secrets(spec, field, budget)
    extras["host_network"] = flag_at(spec, "hostNetwork", field) or False
    extras["host_pid"] = flag_at(spec, "hostPID", field) or False
    extras["host_ipc"] = flag_at(spec, "hostIPC", field) or False
    return extras


def _refuse_unsupported(spec: Mapping[str, Any], field: str) -> None:
    """Refuse fields that a pod depends on and no job has: it must not run without them."""
    if list_at(spec, "resourceClaims", field):
        raise PodRejected(
            f"{field}.resourceClaims", "not supported; ask for devices by resources.limits"
        )
    system = text_at(object_at(spec, "os", field), "name", f"{field}.os")
    if system not in ("", "linux"):
        raise PodRejected(f"{field}.os.name", f"must be linux, not '{system[:80]}'")


def _read_deadline(spec: Mapping[str, Any], field: str) -> Optional[int]:
    deadline = number_at(spec, "activeDeadlineSeconds", field)
    if deadline == 0:
        raise PodRejected(f"{field}.activeDeadlineSeconds", "must be at least 1")
    return deadline


def _read_identity(pod: Mapping[str, Any], spec: Mapping[str, Any], field: str) -> PodIdentity:
    metadata = object_at(pod, "metadata", field)
    subfield = f"{field}.metadata"
    name = text_at(metadata, "name", subfield)
    if not is_subdomain(name):
        raise PodRejected(f"{subfield}.name", SUBDOMAIN_RULE)
    namespace = text_at(metadata, "namespace", subfield)
    if not is_label(namespace):
        raise PodRejected(f"{subfield}.namespace", LABEL_RULE)
    account = text_at(spec, "serviceAccountName", f"{field}.spec")
    return PodIdentity(
        name,
        namespace,
        check_uid(f"{subfield}.uid", metadata.get("uid")),
        text_map_at(metadata, "labels", subfield),
        text_map_at(metadata, "annotations", subfield),
        text_at(spec, "nodeName", f"{field}.spec"),
        account or text_at(spec, "serviceAccount", f"{field}.spec") or "default",
    )


def _read_containers(
    spec: Mapping[str, Any], field: str, annotations: Mapping[str, str], scope: PodScope
) -> tuple[Container, ...]:
    """Read all containers that are to run here, init containers first."""
    names = set()
    found: list[Container] = []
    mains = objects_at(spec, "containers", field)
    inits = objects_at(spec, "initContainers", field) if "initContainers" in spec else []
    scope.context.budget.take("containers", len(mains) + len(inits), field)
    for key, raws in (("initContainers", inits), ("containers", mains)):
        local = _local_names(annotations, key) if annotations else ()
        for index, raw in enumerate(raws):
            subfield = f"{field}.{key}[{index}]"
            name = raw.get("name")
            if type(name) is not str or not is_label(name):
                raise PodRejected(f"{subfield}.name", LABEL_RULE)
            if name in names:
                raise PodRejected(f"{subfield}.name", f"another container is named '{name}'")
            names.add(name)
            if name not in local:
                kind = _read_kind(raw, key, subfield)
                found.append(read_container(raw, name, kind, subfield, scope))
    if not found or found[-1].kind != MAIN:
        raise PodRejected(f"{field}.containers", "must have a container that is to run here")
    return tuple(found)


def _local_names(annotations: Mapping[str, str], key: str) -> frozenset[str]:
    """Return the containers that interLink runs in the cluster itself: they must not run here."""
    names = annotations.get(LOCAL_CONTAINERS if key == "containers" else LOCAL_INIT_CONTAINERS)
    return frozenset(name.strip() for name in names.split(",")) if names else frozenset()


def _read_kind(raw: Mapping[str, Any], key: str, field: str) -> str:
    policy = raw.get("restartPolicy")
    if policy is None or policy == "":
        return MAIN if key == "containers" else INIT
    if key == "containers":
        raise PodRejected(f"{field}.restartPolicy", "only the pod and init containers may have one")
    if policy != "Always":
        raise PodRejected(f"{field}.restartPolicy", "must be Always or absent on an init container")
    return SIDECAR


def _read_volumes(spec: Mapping[str, Any], field: str, budget: Budget) -> tuple[Volume, ...]:
    volumes: dict[str, Volume] = {}
    raws = list_at(spec, "volumes", field)
    budget.take("volumes", len(raws), field)
    for index, raw in enumerate(raws):
        if type(raw) is not dict:
            raise wrong_type(f"{field}.volumes[{index}]", "an object", raw)
        name = raw.get("name")
        if type(name) is not str or not is_label(name):
            raise PodRejected(f"{field}.volumes[{index}].name", LABEL_RULE)
        if name in volumes:
            raise PodRejected(f"{field}.volumes[{index}].name", f"another volume is named '{name}'")
        volumes[name] = _read_volume(raw, name, field, index)
    return tuple(volumes.values())


def _read_volume(raw: Mapping[str, Any], name: str, field: str, index: int) -> Volume:
    """Read a volume; one without any source is an emptyDir, as the API server has it."""
    kind = "emptyDir"
    source: object = None
    for key, value in raw.items():
        if key != "name" and value is not None:
            if source is not None:
                raise PodRejected(f"{field}.volumes[{index}]", f"is both {kind} and {key}")
            kind, source = key, value
    if source is None:
        return Volume(name, kind, {})
    if type(source) is not dict:
        raise wrong_type(f"{field}.volumes[{index}].{kind}", "an object", source)
    return Volume(name, kind, source)


def _read_restart_policy(spec: Mapping[str, Any], field: str) -> str:
    policy = text_at(spec, "restartPolicy", field) or "Always"
    if policy not in _RESTART_POLICIES:
        raise wrong_choice(f"{field}.restartPolicy", _RESTART_POLICIES, policy)
    return policy


def _read_hostname(spec: Mapping[str, Any], field: str, pod_name: str) -> str:
    """Return the pod's host name: its own, else what fits of its name."""
    hostname = text_at(spec, "hostname", field)
    if not hostname:
        return pod_name[:63].rstrip("-.")
    if not is_label(hostname):
        raise PodRejected(f"{field}.hostname", LABEL_RULE)
    return hostname


def _read_host_aliases(
    spec: Mapping[str, Any], field: str, budget: Budget
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    aliases: list[tuple[str, tuple[str, ...]]] = []
    for index, raw in enumerate(objects_at(spec, "hostAliases", field)):
        subfield = f"{field}.hostAliases[{index}]"
        ip = text_at(raw, "ip", subfield)
        try:
            ip_address(ip)
        except ValueError:
            raise PodRejected(f"{subfield}.ip", "must be an IP address") from None
        names = texts_at(raw, "hostnames", subfield)
        budget.take("hosts", 1 + len(names), subfield)
        for position, name in enumerate(names):
            if not is_subdomain(name):
                raise PodRejected(f"{subfield}.hostnames[{position}]", SUBDOMAIN_RULE)
        aliases.append((ip, tuple(names)))
    return tuple(aliases)


def _read_tolerations(spec: Mapping[str, Any], field: str) -> tuple[Mapping[str, object], ...]:
    tolerations = list_at(spec, "tolerations", field)
    for index, toleration in enumerate(tolerations):
        if type(toleration) is not dict:
            raise wrong_type(f"{field}.tolerations[{index}]", "an object", toleration)
        for key in _TOLERATION_TEXTS:
            if key in toleration and type(toleration[key]) is not str:
                text_at(toleration, key, f"{field}.tolerations[{index}]")  # refuses all but null
    return tuple(tolerations)


def _read_pull_secrets(spec: Mapping[str, Any], field: str, budget: Budget) -> tuple[str, ...]:
    raws = objects_at(spec, "imagePullSecrets", field)
    budget.take("pull_secrets", len(raws), field)
    names = [
        text_at(raw, "name", f"{field}.imagePullSecrets[{index}]") for index, raw in enumerate(raws)
    ]
    return tuple(dict.fromkeys([name for name in names if name]))
