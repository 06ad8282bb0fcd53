"""From a pod and a site's BuildConfig to a ``Job``: the one translation there is.

Pure: the same pod and configuration give the same job, to the byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Optional

from templates import script
from templates.annotations import job_annotations
from templates.build_config import BuildConfig
from templates.errors import PodRejected
from templates.names import job_name
from templates.pod import Container, Pod
from templates.quantity import byte_count, cpu_milli
from templates.resources import Totals, totals
from templates.volumes import File


class Job(NamedTuple):
    """What a submitter needs to run a pod, and nothing of Kubernetes."""

    name: str
    uid: str
    namespace: str
    pod: str
    """The pod's name."""
    runtime: str
    script: str
    """job.sh, the whole life of the pod; the scheduler gets only a stub that starts it."""
    files: tuple[File, ...]
    """What goes with the script, relative to the job's directory."""
    cpu_milli: int
    memory_bytes: int
    gpus: Mapping[str, int]
    wall_time_s: Optional[int]
    other_resources: Mapping[str, str]
    annotations: Mapping[str, str]
    """What the pod says to the backend, by the name after the slash."""
    containers: tuple[tuple[str, str, str], ...]
    """Name, kind and image of each, in the order of the pod: what a status has to list."""
    grace_period_s: int
    """Between TERM and KILL when the pod is deleted."""
    host_paths: tuple[str, ...]
    """What it mounts of the site's own files, as the pod names them."""
    privileged: bool
    """Whether a container asks for rights that a site has to grant."""


def build(pod: Pod, config: BuildConfig) -> Job:
    """Translate, or refuse with one line that says what the site cannot give."""
    annotations = job_annotations(pod.annotations, config.rules)
    _check_security(pod, config)
    asked = totals(pod)
    cpu, memory = _amounts(asked, config)
    wall_time = pod.deadline_s or config.defaults.wall_time_s
    _check_limits(asked, cpu, memory, pod.deadline_s, config)
    name = job_name(pod.name, pod.uid)
    text, files = script.write(name, pod, config, annotations)
    return Job(
        name=name,
        uid=pod.uid,
        namespace=pod.namespace,
        pod=pod.name,
        runtime=config.runtime.name,
        script=text,
        files=files,
        cpu_milli=cpu,
        memory_bytes=memory,
        gpus=asked.gpus,
        wall_time_s=wall_time,
        other_resources=asked.other,
        annotations=annotations.backend,
        containers=tuple((c.name, c.kind, c.image) for c in pod.containers),
        grace_period_s=pod.grace_period_s,
        host_paths=tuple(str(v.source.get("path")) for v in pod.volumes if v.kind == "hostPath"),
        privileged=pod.host_pid or pod.host_ipc or any(map(_widens, pod.containers)),
    )


def _widens(container: Container) -> bool:
    """Whether a container asks for more rights than the job's user has in any container."""
    return container.security.privileged or bool(container.security.add_capabilities)


def _amounts(asked: Totals, config: BuildConfig) -> tuple[int, int]:
    """What the scheduler is asked for: the requests, else the limits, else the site's defaults."""
    cpu = asked.cpu_milli or cpu_milli(config.defaults.cpu or "0")
    memory = asked.memory_bytes or byte_count(config.defaults.memory or "0")
    return cpu, max(memory, asked.memory_limit_bytes)


def _check_limits(
    asked: Totals, cpu: int, memory: int, deadline: Optional[int], config: BuildConfig
) -> None:
    limits = config.limits
    where = "pod.spec.containers"
    if limits.cpu is not None and cpu > cpu_milli(limits.cpu):
        raise PodRejected(where, f"{cpu / 1000:g} cpus are more than this site's {limits.cpu}")
    if limits.memory is not None and memory > byte_count(limits.memory):
        raise PodRejected(
            where, f"{memory} bytes of memory are more than this site's {limits.memory}"
        )
    if limits.gpus is not None and sum(asked.gpus.values()) > limits.gpus:
        raise PodRejected(
            where, f"{sum(asked.gpus.values())} GPUs are more than this site's {limits.gpus}"
        )
    if limits.wall_time_s is not None and (deadline or 0) > limits.wall_time_s:
        raise PodRejected(
            "pod.spec.activeDeadlineSeconds",
            f"{deadline} s are more than this site's {limits.wall_time_s}",
        )


def _check_security(pod: Pod, config: BuildConfig) -> None:
    """What widens a container's rights needs the site's consent; what narrows them never hurts."""
    if config.rules.privileged:
        return
    for asked, field in ((pod.host_pid, "hostPID"), (pod.host_ipc, "hostIPC")):
        if asked:
            raise PodRejected(f"pod.spec.{field}", "this site does not allow it")
    for container in pod.containers:
        security = container.security
        if _widens(container):
            field = "privileged" if security.privileged else "capabilities.add"
            where = f"pod.spec containers[{container.name}].securityContext.{field}"
            raise PodRejected(where, "this site does not allow it")
