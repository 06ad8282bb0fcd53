"""The bash that says what one container is: its half of job.sh and of secret/pod.sh."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from templates.common.constants import gpu_vendor, is_gpu
from templates.common.errors import PodRejected
from templates.common.quantity import byte_count, cpu_milli
from templates.common.quoting import quote, words
from templates.job.model import File
from templates.pod.model import MAIN, SIDECAR, Action, Container, Mount, Pod, Probe
from templates.resolve import images
from templates.resolve.annotations import JobAnnotations
from templates.resolve.credentials import registry_login
from templates.resolve.volumes import Source
from templates.script.functions import APPTAINER, is_odd
from templates.site.build_config import KUBERNETES, BuildConfig

_PRIVATE = 0o600
_KEPT_BY_APPTAINER = frozenset(("IFS", "PPID"))
_PODMAN_DEVICES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "intel": "intel.com/gpu"}
_APPTAINER_FLAGS = {"nvidia": "--nv", "amd": "--rocm"}


class Site(NamedTuple):
    """What all containers of a pod have in common at a site."""

    pod: Pod
    config: BuildConfig
    annotations: JobAnnotations
    volumes: Mapping[str, Source]

    @property
    def own_network(self) -> bool:
        """Whether the pod has a network of its own, and not the node's."""
        return has_networks(self.config) and not self.pod.host_network


def has_networks(config: BuildConfig) -> bool:
    """Whether a site gives pods networks of their own."""
    name = config.runtime.name
    return name == KUBERNETES or (name == "podman" and config.podman.network not in ("", "host"))


class Gathered(NamedTuple):
    """What a pod's containers add to its job while they are put into bash, one after the other."""

    files: list[File]
    needs: set[str]  # of library.NEEDS
    functions: list[str]  # for job.sh: one for each container
    secrets: list[str]  # for secret/pod.sh: one for each container
    actions: list[str]  # for secret/pod.sh: one for each probe and hook


def add_container(site: Site, index: int, container: Container, to: Gathered) -> None:
    """Put a container into bash: what may be secret of it, and the rest."""
    to.secrets.append(_secret_function(site, index, container, to.needs))
    to.functions.append(_function(site, index, container, to))


def _function(site: Site, index: int, container: Container, to: Gathered) -> str:
    image = container.image
    lines: list[str] = []
    if site.config.runtime.name != "host":
        image, lines = _image(site, index, container, to)
    lines = [
        f"name={container.name} kind={container.kind} image={quote(image)}",
        *lines,
        *_facts(site, container, to.needs),
        *_actions(index, container, to),
        *_binds(site, container, to.needs),
    ]
    facts = "\n    ".join(lines)
    return f"\ncontainer_{index}() {{\n    {facts}\n}}\n"


def _secret_function(site: Site, index: int, container: Container, needs: set[str]) -> str:
    """Return the function with a container's command and environment."""
    runtime, command = site.config.runtime.name, container.command
    if runtime == "host" and not command:
        where = f"pod.spec containers[{container.name}].command"
        raise PodRejected(where, "must be given: the host runtime has no images")
    entrypoint = ""
    if runtime == "podman" and command:
        quoted = quote(json.dumps(command, ensure_ascii=False))
        entrypoint = f"    entrypoint={quoted}\n"
    return (
        f"secret_{index}() {{ # {container.name}\n"
        f"    command=({words(command)}) args=({words(container.args)})\n"
        f"    env=(\n        {_environment(site, container, needs)}\n    )\n{entrypoint}}}\n"
    )


def _environment(site: Site, container: Container, needs: set[str]) -> str:
    """What every pod has, then what the site sets, then the container's own: the last one wins."""
    env = {"HOSTNAME": site.pod.hostname, **site.config.environment.set}
    if site.annotations.pod_ip:
        env["POD_IP"] = site.annotations.pod_ip
    env.update(container.env)
    if site.config.runtime.name in APPTAINER and not _KEPT_BY_APPTAINER.isdisjoint(env):
        where = f"pod.spec containers[{container.name}].env"
        raise PodRejected(where, f"{site.config.runtime.name} keeps IFS and PPID for itself")
    text = words(list(map("=".join, env.items())), "\n        ")
    # Apptainer would turn a carriage return in what it is told by prefix into a new line.
    if "\r" in text or any(map(is_odd, env)):
        needs.add("odd")
    return text


def _image(site: Site, index: int, container: Container, to: Gathered) -> tuple[str, list[str]]:
    """What the runtime is told to start, and what else is to be known of it."""
    config, pod = site.config, site.pod
    where = f"pod.spec containers[{container.name}].image"
    root = site.annotations.image_root
    image = images.find(container.image, config.runtime.name, config.images, root, where)
    lines = [f"pull={container.pull_policy} file={quote(image.file)}"]
    if container.pull_policy == "Always":
        to.needs.add("always")
    if image.file and not image.registry:
        to.needs.add("archives")
    if image.places:
        to.needs.add("places")
        lines.append(f"places=({words(image.places)})")
    login = registry_login(image.registry, pod) if image.registry and pod.pull_secrets else None
    if login is not None:
        to.needs.add("login")
        to.files.append(File(f"secret/login-{index}", login.lines(), _PRIVATE, True))
        to.files.append(File(f"secret/login-{index}.json", login.document(), _PRIVATE, True))
        lines.append(f"login=login-{index}")
    return image.reference, lines


def _facts(site: Site, container: Container, needs: set[str]) -> list[str]:
    lines = []
    if container.kind == SIDECAR:
        needs |= {"sidecars", "restarts"}
    if container.working_dir:
        lines.append(f"workdir={quote(posixpath.join('/', container.working_dir))}")
    if container.message_from_logs:
        needs.add("message_from_logs")
        lines.append("message=logs")
    if container.message_path != "/dev/termination-log":
        needs.add("message_paths")
        lines.append(f"message_path={quote(container.message_path)}")
    if "memory" in container.limits:
        needs.add("memory")
        lines.append(f"memory={byte_count(container.limits['memory'])}")
    cpu = cpu_milli(container.limits.get("cpu", "0"))
    if cpu and site.config.runtime.name == "podman":
        needs.add("cpus")
        lines.append(f"cpus={cpu / 1000:g}")
    lines += _runtime_facts(container, site.config, needs)
    flags = site.annotations.mpi_flags
    if flags is not None and container.kind == MAIN:
        lines.append(f'launcher=(mpiexec -np "${{SLURM_NTASKS:-1}}" {words(flags)})')
    return lines


def _runtime_facts(container: Container, config: BuildConfig, needs: set[str]) -> list[str]:
    lines = []
    gpu = _gpu(container, config)
    if gpu:
        needs.add("gpus")
        lines.append(f"gpu={gpu}")
    security = container.security
    if security.read_only_root or not config.apptainer.writable_tmpfs:
        lines.append("writable=")
    if config.runtime.name != "podman":
        return lines
    if security.run_as_user is not None:
        needs.add("users")
        group = "" if security.run_as_group is None else f":{security.run_as_group}"
        lines.append(f"user={security.run_as_user}{group}")
    flags = [f"--cap-drop={name}" for name in security.drop_capabilities]
    flags += [f"--cap-add={name}" for name in security.add_capabilities]
    flags += ["--privileged"] if security.privileged else []
    if flags:
        lines.append(f"capabilities=({words(flags)})")
    return lines


def _gpu(container: Container, config: BuildConfig) -> str:
    """The runtime's way to hand over GPUs; empty: none."""
    if config.runtime.gpu == "never":
        return ""
    vendor = "nvidia" if config.runtime.gpu == "always" else ""
    name = ""
    for name, amount in {**container.requests, **container.limits}.items():
        if is_gpu(name) and amount != "0":
            vendor = gpu_vendor(name)
            break
    known = _PODMAN_DEVICES if config.runtime.name == "podman" else _APPTAINER_FLAGS
    if vendor and vendor not in known and config.runtime.name in APPTAINER:
        where = f"pod.spec containers[{container.name}].resources"
        raise PodRejected(where, f"{config.runtime.name} cannot hand {name} to a container")
    return known.get(vendor, "")


def _binds(site: Site, container: Container, needs: set[str]) -> list[str]:
    """Mounts with parents before children, whatever the order in the pod."""
    lines = []
    for bind in site.annotations.mounts:
        needs.add("nested")
        mode = "ro" if bind.read_only else "rw"
        lines.append(f"bind {quote(bind.source)} {quote(bind.target)} {mode}")
    for volume, path, read_only, sub_path in sorted(container.mounts, key=_depth):
        source = site.volumes[volume]
        if source.check:
            lines.append(source.check)
        mode = "ro" if read_only or source.read_only else "rw"
        line = f"bind {source.word} {quote(path)} {mode}"
        if sub_path:
            needs.add("sub_paths")
            line = f"{line} {quote(sub_path)}"
        lines.append(line)
    working_dir = container.working_dir and posixpath.join("/", container.working_dir)
    if any(working_dir.startswith(mount.path.rstrip("/") + "/") for mount in container.mounts):
        needs.add("workdirs")
        lines.append("make_workdir")
    # Apptainer's --bind splits at the first two of these and unquotes at the third.
    text = "".join(lines)  # as good as the paths themselves: quotes add none of these
    if "," in text or ":" in text or "\\" in text:
        needs.add("odd_paths")
    if _are_nested(container.mounts):
        needs.add("nested")
    return lines


def _depth(mount: Mount) -> int:
    return mount.path.rstrip("/").count("/")


def _are_nested(mounts: Iterable[Mount]) -> bool:
    paths = sorted([path.rstrip("/") + "/" for _, path, _, _ in mounts])
    return any(map(str.startswith, paths[1:], paths))


def _actions(index: int, container: Container, to: Gathered) -> list[str]:
    """Which probes and hooks there are; what each does is a bash function of its own."""
    lines: list[str] = []
    actions: list[Action] = []
    probes = {
        "startup": container.startup,
        "liveness": container.liveness,
        "readiness": container.readiness,
    }
    hooks = {"post_start": container.post_start, "pre_stop": container.pre_stop}
    if not (any(probes.values()) or any(hooks.values())):
        return lines
    found = [(name, probe) for name, probe in probes.items() if probe]
    if found:
        to.needs.add("probes")
        lines.append(f"probes={quote(' '.join([name for name, _ in found]))}")
    for name, probe in found:
        actions.append(probe.action)
        line = f"{name}_{index}() {{ {_action_line(probe.action)} {_numbers(probe)}; }}\n"
        to.actions.append(line)
    used = [(name, action) for name, action in hooks.items() if action]
    if used:
        to.needs.add("hooks")
        lines.append(f"hooks={quote(' '.join([name for name, _ in used]))}")
    for name, action in used:
        actions.append(action)
        to.actions.append(f"{name}_{index}() {{ {_action_line(action)}; }}\n")
    if any(action.kind == "exec" for action in actions):  # they have to go inside the container
        to.needs.add("joined")
        lines.append("shared=1")
    return lines


def _action_line(action: Action) -> str:
    host = action.host or "127.0.0.1"
    headers = [f"{name}: {value}" for name, value in action.headers]
    told = {
        "exec": ["exec", *action.command],
        "sleep": ["sleep", str(action.seconds)],
        "tcp": ["tcp", host, str(action.port)],
        "http": ["http", action.scheme, host, str(action.port), action.path, *headers],
    }[action.kind]
    return f"action=({words(told)})"


def _numbers(probe: Probe) -> str:
    grace = "" if probe.grace_period_s is None else probe.grace_period_s
    return (
        f"initial={probe.initial_delay_s} period={probe.period_s} timeout={probe.timeout_s} "
        f"successes={probe.success_threshold} failures={probe.failure_threshold} grace={grace}"
    )
