"""Translation of a pod and a site's BuildConfig into a ``Job``.

Pure: the same pod and configuration give the same job, to the byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

from templates.common.errors import PodRejected
from templates.common.names import job_name
from templates.common.quantity import byte_count, cpu_milli
from templates.job.model import Job
from templates.manifests import objects as kubernetes_objects
from templates.pod.model import Pod
from templates.resolve.annotations import JobAnnotations, job_annotations
from templates.resolve.images import in_full
from templates.resolve.resources import Totals, totals
from templates.script import job_script
from templates.script.containers import has_networks
from templates.site.build_config import KUBERNETES, BuildConfig


def build(pod: Pod, config: BuildConfig) -> Job:
    """Translate a pod, or refuse it with one line that names what the site cannot give."""
    annotations = job_annotations(pod.annotations, config.rules)
    privileged = _privileged_field(pod, config)
    if privileged and not config.rules.privileged:
        raise PodRejected(privileged, "this site does not allow it")
    requested = totals(pod)
    cpu, memory = _requested_amounts(requested, config)
    _check_limits(requested, cpu, memory, pod.deadline_s, config)
    name = job_name(pod.name, pod.uid)
    renderer = kubernetes_objects if config.runtime.name == KUBERNETES else job_script
    text, files = renderer.render(name, pod, config, annotations)
    return Job(
        name=name,
        uid=pod.uid,
        namespace=pod.namespace,
        pod=pod.name,
        runtime=config.runtime.name,
        script=text,
        files=files,
        cpu_milli=cpu,
        memory_bytes=max(memory, byte_count(config.runtime.least_memory)) if memory else 0,
        gpus=requested.gpus,
        wall_time_s=pod.deadline_s or config.defaults.wall_time_s,
        other_resources=requested.other,
        annotations=annotations.backend,
        containers=tuple([(c.name, c.kind, c.image) for c in pod.containers]),
        grace_period_s=pod.grace_period_s,
        host_paths=_host_paths(pod, annotations),
        privileged=bool(privileged),
        images=_images(pod, config, annotations.image_root),
        used_annotations=annotations.used,
        options=annotations.options,
    )


def _host_paths(pod: Pod, annotations: JobAnnotations) -> tuple[str, ...]:
    volumes = [str(v.source.get("path")) for v in pod.volumes if v.kind == "hostPath"]
    return (*volumes, *[mount.source for mount in annotations.mounts])


def _images(pod: Pod, config: BuildConfig, root: str) -> tuple[str, ...]:
    runtime, site = config.runtime.name, config.images
    found = []
    for container in pod.containers:
        field = f"pod.spec containers[{container.name}].image"
        found.append(in_full(container.image, runtime, site, root, field))
    return tuple(found)


def _privileged_field(pod: Pod, config: BuildConfig) -> str:
    """Return the field by which a container exceeds the user's own rights; empty if none does.

    That needs the site's consent; to narrow a container's rights needs none.
    """
    if pod.host_pid:
        return "pod.spec.hostPID"
    if pod.host_ipc:
        return "pod.spec.hostIPC"
    if pod.host_network and has_networks(config):
        return "pod.spec.hostNetwork"
    for container in pod.containers:
        security = container.security
        if security.privileged or security.add_capabilities:
            key = "privileged" if security.privileged else "capabilities.add"
            return f"pod.spec containers[{container.name}].securityContext.{key}"
    return _unconfined_field(pod) if config.runtime.name == KUBERNETES else ""


def _unconfined_field(pod: Pod) -> str:
    if _is_unconfined(pod.security):
        return "pod.spec.securityContext.seccompProfile"
    for container in pod.containers:
        if _is_unconfined(container.security.others):
            return f"pod.spec containers[{container.name}].securityContext.seccompProfile"
    return ""


def _is_unconfined(security: Mapping[str, Any]) -> bool:
    """Return whether a security context takes the filter of system calls away."""
    profile = security.get("seccompProfile")
    return isinstance(profile, dict) and profile.get("type") == "Unconfined"


def _requested_amounts(requested: Totals, config: BuildConfig) -> tuple[int, int]:
    """Return cpu and memory to request: the requests, else the limits, else the site's defaults."""
    cpu = requested.cpu_milli or cpu_milli(config.defaults.cpu or "0")
    memory = requested.memory_bytes or byte_count(config.defaults.memory or "0")
    return cpu, max(memory, requested.memory_limit_bytes)


def _check_limits(
    requested: Totals, cpu: int, memory: int, deadline: Optional[int], config: BuildConfig
) -> None:
    limits = config.limits
    field = "pod.spec.containers"
    if limits.cpu is not None and cpu > cpu_milli(limits.cpu):
        raise PodRejected(field, f"{cpu / 1000:g} cpus are more than this site's {limits.cpu}")
    if limits.memory is not None and memory > byte_count(limits.memory):
        raise PodRejected(
            field, f"{memory} bytes of memory are more than this site's {limits.memory}"
        )
    if limits.gpus is not None and sum(requested.gpus.values()) > limits.gpus:
        raise PodRejected(
            field, f"{sum(requested.gpus.values())} GPUs are more than this site's {limits.gpus}"
        )
    if limits.wall_time_s is not None and (deadline or 0) > limits.wall_time_s:
        raise PodRejected(
            "pod.spec.activeDeadlineSeconds",
            f"{deadline} s are more than this site's {limits.wall_time_s}",
        )
