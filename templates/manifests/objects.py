"""A pod as objects for another cluster: the second renderer of a ``Job``, beside ``job_script.py``.

Everything that came with the pod is sent along: the values of its variables, its ConfigMaps,
Secrets, projected volumes and tokens are files by now, and become objects of the far cluster that
belong to the far pod. Of the first cluster's names only those are kept that people want to read.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Optional

from templates.common.constants import KUEUE_QUEUE_LABEL, SITE_JOB_LABEL, SITE_POD_ANNOTATION
from templates.common.errors import PodRejected
from templates.job.model import MANIFESTS, File
from templates.pod.model import MAIN, SIDECAR, Action, Container, Mount, Pod, Probe, Security
from templates.resolve.annotations import JobAnnotations
from templates.resolve.credentials import pull_secret
from templates.resolve.images import in_full
from templates.resolve.resources import totals
from templates.resolve.volumes import VolumeSource, resolve_volumes
from templates.site.build_config import KUBERNETES, BuildConfig

SCRIPT = (
    "#!/bin/bash\n# The pod runs in the site's Kubernetes cluster, not by this script.\nexit 1\n"
)
CLAIM = "persistentVolumeClaim"
LARGEST_OBJECT = 1024 * 1024 - 16 * 1024  # of data; leaves room for the rest of the object

Json = dict[str, Any]


def render(
    job: str, pod: Pod, config: BuildConfig, annotations: JobAnnotations
) -> tuple[str, tuple[File, ...]]:
    """Return a stub of a script, and the file with the far cluster's objects."""
    if annotations.pre_exec or annotations.tunnel_commands or annotations.singularity_commands:
        raise PodRejected("pod.metadata.annotations", "bash of the pod's own runs on no cluster")
    objects = _Objects(job)
    volumes, names = _volumes(pod, config, objects)
    spec = _spec(pod, config)
    for container in pod.containers:
        kind = "containers" if container.kind == MAIN else "initContainers"
        spec.setdefault(kind, []).append(_container(container, config, names, objects))
    _add_defaults(spec, pod, config)
    if volumes:
        spec["volumes"] = volumes
    secrets = [{"name": name} for name in config.kubernetes.pull_secrets]
    secrets += [{"name": name} for name in _pull_secrets(pod, objects)]
    if secrets:
        spec["imagePullSecrets"] = secrets
    metadata = _metadata(job, pod, config)
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    text = json.dumps({"pod": made, "objects": objects.manifests}, separators=(",", ":"))
    return SCRIPT, (File(MANIFESTS, text.encode(), 0o600, True),)


class _Objects:
    """The ConfigMaps and Secrets of one pod."""

    def __init__(self, job: str) -> None:
        self._job = job
        self.manifests: list[Json] = []

    def add(self, suffix: str, data: Mapping[str, bytes], field: str, *, kind: str = "") -> str:
        """Add an object with this data and return its name.

        ``kind`` is ConfigMap or the type of a Secret.
        """
        size = sum(map(len, data.values()))
        if size > LARGEST_OBJECT:
            message = (
                f"{size} bytes are more than the {LARGEST_OBJECT} that a cluster takes at once"
            )
            raise PodRejected(field, message)
        name = f"{self._job}-{suffix}"
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        made: Json = {"apiVersion": "v1", "metadata": {"name": name}, "immutable": True}
        if kind == "ConfigMap":
            made.update({"kind": "ConfigMap", "binaryData": encoded})
        else:
            made.update({"kind": "Secret", "type": kind or "Opaque", "data": encoded})
        self.manifests.append(made)
        return name


# --- the pod --------------------------------------------------------------------------------------


def _metadata(job: str, pod: Pod, config: BuildConfig) -> Json:
    """Return it without the pod's own labels: the far cluster's services would match them."""
    labels = {SITE_JOB_LABEL: job}
    if config.kubernetes.queue:
        labels[KUEUE_QUEUE_LABEL] = config.kubernetes.queue
    annotations = {SITE_POD_ANNOTATION: f"{pod.namespace}/{pod.name}"}
    return {"name": job, "labels": labels, "annotations": annotations}


def _spec(pod: Pod, config: BuildConfig) -> Json:
    """Return all but containers and volumes, and nothing of the first cluster's scheduling."""
    site = config.kubernetes
    deadline = pod.deadline_s or config.defaults.wall_time_s
    given: Json = {
        "restartPolicy": pod.restart_policy,
        "terminationGracePeriodSeconds": pod.grace_period_s,
        "activeDeadlineSeconds": deadline,
        "hostname": pod.hostname if "." not in pod.hostname else None,
        "hostAliases": [{"ip": ip, "hostnames": [*names]} for ip, names in pod.host_aliases],
        "hostNetwork": pod.host_network,
        "hostPID": pod.host_pid,
        "hostIPC": pod.host_ipc,
        "securityContext": dict(pod.security),
        "nodeSelector": dict(site.node_selector),
        "tolerations": [_toleration(taint) for taint in site.tolerations],
        "runtimeClassName": site.runtime_class,
        "priorityClassName": site.priority_class,
        "serviceAccountName": site.service_account,
    }
    kept = {key: value for key, value in given.items() if value not in (None, "", False, [], {})}
    # The pod gets neither tokens nor services of the far cluster.
    return {**kept, "automountServiceAccountToken": False, "enableServiceLinks": False}


def _toleration(taint: str) -> Json:
    """Return the toleration of a taint that is written key=value:effect."""
    key, _, rest = taint.partition("=")
    value, _, effect = rest.rpartition(":")
    return {"key": key, "operator": "Equal", "value": value, "effect": effect}


def _add_defaults(spec: Json, pod: Pod, config: BuildConfig) -> None:
    """Add the site's default requests to the first main container of a pod that has none."""
    requested = totals(pod)
    missing = {
        "cpu": requested.cpu_milli,
        "memory": requested.memory_bytes or requested.memory_limit_bytes,
    }
    for name, amount in missing.items():
        default = getattr(config.defaults, name)
        if not amount and default is not None:
            resources = spec["containers"][0].setdefault("resources", {})
            resources.setdefault("requests", {})[name] = default


def _pull_secrets(pod: Pod, objects: _Objects) -> Iterator[str]:
    """Add the pull secrets that came with the pod, and yield their names."""
    for index, name in enumerate(pod.pull_secrets):
        document = pull_secret(name, pod)
        if document is not None:
            data = {".dockerconfigjson": document}
            kind = "kubernetes.io/dockerconfigjson"
            yield objects.add(f"login-{index}", data, "pod.spec.imagePullSecrets", kind=kind)


# --- containers -----------------------------------------------------------------------------------


def _container(
    container: Container, config: BuildConfig, volumes: Mapping[str, Json], objects: _Objects
) -> Json:
    field = f"pod.spec containers[{container.name}]"
    made: Json = {
        "name": container.name,
        "image": in_full(container.image, KUBERNETES, config.images, "", f"{field}.image"),
        "imagePullPolicy": container.pull_policy,
        "terminationMessagePath": container.message_path,
    }
    if container.kind == SIDECAR:
        made["restartPolicy"] = "Always"
    if container.message_from_logs:
        made["terminationMessagePolicy"] = "FallbackToLogsOnError"
    given = {
        "command": [_literal(word) for word in container.command],
        "args": [_literal(word) for word in container.args],
        "workingDir": container.working_dir,
        "env": _variables(container, config, objects, field),
        "volumeMounts": [_mount(mount, volumes) for mount in container.mounts],
        "resources": _resources(container),
        "securityContext": _security(container.security),
        "startupProbe": _probe(container.startup),
        "livenessProbe": _probe(container.liveness),
        "readinessProbe": _probe(container.readiness),
        "lifecycle": _hooks(container),
    }
    made.update({key: value for key, value in given.items() if value})
    return made


def _literal(text: str) -> str:
    """Escape what the kubelet would expand once more: ``$(NAME)``."""
    return text.replace("$", "$$") if "$(" in text or "$$" in text else text


def _variables(
    container: Container, config: BuildConfig, objects: _Objects, field: str
) -> list[Json]:
    """Put the values into a Secret: whoever may list pods there need not see them."""
    values = {**config.environment.set, **dict(container.env)}
    if not values:
        return []
    data = {str(index): value.encode() for index, value in enumerate(values.values())}
    secret = objects.add(f"env-{container.name}"[:200], data, f"{field}.env")
    return [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": str(index)}}}
        for index, name in enumerate(values)
    ]


def _security(security: Security) -> Json:
    made = dict(security.others)
    given = {
        "runAsUser": security.run_as_user,
        "runAsGroup": security.run_as_group,
        "runAsNonRoot": security.run_as_non_root or None,
        "privileged": security.privileged or None,
        "readOnlyRootFilesystem": security.read_only_root or None,
    }
    made.update({key: value for key, value in given.items() if value is not None})
    changes = {"add": [*security.add_capabilities], "drop": [*security.drop_capabilities]}
    capabilities = {key: value for key, value in changes.items() if value}
    if capabilities:
        made["capabilities"] = capabilities
    return made


def _resources(container: Container) -> Json:
    given = {"requests": dict(container.requests), "limits": dict(container.limits)}
    return {key: value for key, value in given.items() if value}


def _probe(probe: Optional[Probe]) -> Optional[Json]:
    if probe is None:
        return None
    made: Json = {
        **_action(probe.action),
        "initialDelaySeconds": probe.initial_delay_s,
        "periodSeconds": probe.period_s,
        "timeoutSeconds": probe.timeout_s,
        "successThreshold": probe.success_threshold,
        "failureThreshold": probe.failure_threshold,
    }
    if probe.grace_period_s is not None:
        made["terminationGracePeriodSeconds"] = probe.grace_period_s
    return made


def _hooks(container: Container) -> Json:
    hooks = {"postStart": container.post_start, "preStop": container.pre_stop}
    return {name: _action(hook) for name, hook in hooks.items() if hook is not None}


def _action(action: Action) -> Json:
    if action.kind == "exec":
        return {"exec": {"command": [*action.command]}}
    if action.kind == "sleep":
        return {"sleep": {"seconds": action.seconds}}
    made: Json = {"port": action.port}
    if action.host:
        made["host"] = action.host
    if action.kind == "tcp":
        return {"tcpSocket": made}
    made.update({"path": action.path, "scheme": action.scheme.upper()})
    if action.headers:
        made["httpHeaders"] = [{"name": name, "value": value} for name, value in action.headers]
    return {"httpGet": made}


# --- volumes --------------------------------------------------------------------------------------


def _volumes(
    pod: Pod, config: BuildConfig, objects: _Objects
) -> tuple[list[Json], dict[str, Json]]:
    """Return the far pod's volumes, as a list and by name."""
    used = {mount.volume for container in pod.containers for mount in container.mounts}
    elsewhere = [volume for volume in pod.volumes if volume.kind not in (CLAIM, "nfs")]
    found = resolve_volumes(pod._replace(volumes=tuple(elsewhere)), config)
    made: dict[str, Json] = {}
    for volume in pod.volumes:
        field = f"pod.spec.volumes[{volume.name}].{volume.kind}"
        if volume.name not in used:
            continue
        if volume.kind == "nfs":  # of which the nodes of a cluster need not have anything mounted
            raise PodRejected(field, "volumes of type nfs are not supported in this pool")
        if volume.kind == CLAIM:
            made[volume.name] = _claim(pod, volume.source, config, field)
        elif volume.kind == "hostPath":
            path = {"path": volume.source["path"], "type": volume.source.get("type") or ""}
            read_only = found[volume.name].read_only
            made[volume.name] = {"hostPath": path, **({"readOnly": True} if read_only else {})}
        else:
            made[volume.name] = _volume(volume.name, found[volume.name], objects, field)
    listed = [
        {"name": name, **{key: value for key, value in source.items() if key != "readOnly"}}
        for name, source in made.items()
    ]
    return listed, made


def _claim(pod: Pod, source: Mapping[str, object], config: BuildConfig, field: str) -> Json:
    name, claims = str(source.get("claimName")), config.kubernetes.claims
    claim = claims.get(f"{pod.namespace}/{name}") or claims.get(name)
    if claim is None:
        full = f"{pod.namespace}/{name}"
        raise PodRejected(field, f"this site has no claim for {full} (kubernetes.claims)")
    return {CLAIM: {"claimName": claim, "readOnly": bool(source.get("readOnly"))}}


def _volume(name: str, source: VolumeSource, objects: _Objects, field: str) -> Json:
    """Return an emptyDir, or a volume with files, which are an object's keys by number."""
    if source.files:
        return _files(name, source.files, objects, field)
    given: Json = {"medium": "Memory"} if source.in_memory else {}
    if source.size_limit:
        given["sizeLimit"] = str(source.size_limit)
    return {"emptyDir": given}


def _files(name: str, files: Iterable[File], objects: _Objects, field: str) -> Json:
    listed = list(files)
    secret = any(file.secret for file in listed)
    data = {str(index): file.content for index, file in enumerate(listed)}
    kind = "" if secret else "ConfigMap"
    made = objects.add(f"volume-{name}", data, field, kind=kind)
    folder = f"{'secret/' if secret else ''}volumes/{name}/"
    items = [
        {"key": str(index), "path": file.path[len(folder) :], "mode": file.mode}
        for index, file in enumerate(listed)
    ]
    if secret:
        return {"secret": {"secretName": made, "items": items}}
    return {"configMap": {"name": made, "items": items}}


def _mount(mount: Mount, volumes: Mapping[str, Json]) -> Json:
    made: Json = {"name": mount.volume, "mountPath": mount.path}
    if mount.read_only or volumes[mount.volume].get("readOnly"):
        made["readOnly"] = True
    if mount.sub_path:
        made["subPath"] = mount.sub_path
    return made
