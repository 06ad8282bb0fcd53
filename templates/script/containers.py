"""The bash functions of one container: its half of job.sh and of secret/pod.sh."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Optional

from templates.common.constants import gpu_vendor, is_gpu
from templates.common.errors import PodRejected
from templates.common.quantity import byte_count, cpu_milli
from templates.common.quoting import quote, quote_all
from templates.job.model import File
from templates.pod.model import MAIN, SIDECAR, Action, Container, Mount, Pod, Probe
from templates.resolve import images
from templates.resolve.annotations import JobAnnotations
from templates.resolve.credentials import Logins
from templates.resolve.volumes import VolumeSource
from templates.script.environment import apptainer_script, is_odd, podman_variables
from templates.script.functions import APPTAINER
from templates.site.build_config import KUBERNETES, BuildConfig

_PRIVATE = 0o600
_MESSAGE_PATH = "/dev/termination-log"
# In Apptainer's container, where /dev cannot be mounted into.
_LINK_MESSAGE = (
    "for interlink_ln in /bin/ln /usr/bin/ln; do\n"
    f"    $interlink_ln -s /.interlink/message {_MESSAGE_PATH} 2>/dev/null && break\n"
    "done || :\n"
    "unset interlink_ln\n"
)
_PODMAN_DEVICES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "intel": "intel.com/gpu"}
_APPTAINER_FLAGS = {"nvidia": "--nv", "amd": "--rocm"}


class ScriptContext(NamedTuple):
    """A pod at a site: the input that all of its containers' functions share."""

    pod: Pod
    config: BuildConfig
    annotations: JobAnnotations
    volumes: Mapping[str, VolumeSource]
    logins: Optional[Logins]  # None: no pull secrets came with it

    @property
    def own_network(self) -> bool:
        """Return whether the pod has a network of its own, and not the node's."""
        return has_networks(self.config) and not self.pod.host_network


def has_networks(config: BuildConfig) -> bool:
    """Return whether a site gives pods networks of their own."""
    name = config.runtime.name
    return name == KUBERNETES or (name == "podman" and config.podman.network not in ("", "host"))


class ScriptParts(NamedTuple):
    """Parts of a job that its containers add to, one after the other."""

    files: list[File]
    needs: set[str]  # of functions.NEEDS
    functions: list[str]  # for job.sh: one for each container
    secrets: list[str]  # for secret/pod.sh: one for each container
    actions: list[str]  # for secret/pod.sh: one for each probe and hook


def add_container(
    context: ScriptContext, index: int, container: Container, parts: ScriptParts
) -> None:
    """Add a container's functions: the secret part of it, and the rest."""
    parts.secrets.append(_secret_function(context, index, container, parts))
    parts.functions.append(_container_function(context, index, container, parts))


def _container_function(
    context: ScriptContext, index: int, container: Container, parts: ScriptParts
) -> str:
    image = container.image
    lines: list[str] = []
    if context.config.runtime.name != "host":
        image, lines = _image(context, index, container, parts)
    lines = [
        f"name={container.name} kind={container.kind} image={quote(image)}",
        *lines,
        *_settings(context, container, parts.needs),
        *_actions(index, container, parts),
        *_binds(context, container, parts.needs),
    ]
    body = "\n    ".join(lines)
    return f"\ncontainer_{index}() {{\n    {body}\n}}\n"


def _secret_function(
    context: ScriptContext, index: int, container: Container, parts: ScriptParts
) -> str:
    """Return the function with a container's command and environment."""
    runtime, command = context.config.runtime.name, container.command
    if runtime == "host" and not command:
        field = f"pod.spec containers[{container.name}].command"
        raise PodRejected(field, "must be given: the host runtime has no images")
    entrypoint = ""
    if runtime == "podman" and command:
        quoted = quote(json.dumps(command, ensure_ascii=False))
        entrypoint = f"    entrypoint={quoted}\n"
    return (
        f"secret_{index}() {{ # {container.name}\n"
        f"    command=({quote_all(command)}) args=({quote_all(container.args)})\n"
        f"{_environment(context, index, container, parts)}{entrypoint}}}\n"
    )


def _environment(
    context: ScriptContext, index: int, container: Container, parts: ScriptParts
) -> str:
    """Return what bash has to know of the variables; what a runtime reads becomes a file."""
    env, runtime = _variables(context, container), context.config.runtime.name
    odd: list[str] = []
    if runtime == "podman":
        variables = podman_variables(env)
        parts.files.append(File(f"secret/env-{index}", variables.lines, _PRIVATE, True))
        if not variables.options:
            return ""
        parts.needs.add("modules")
        parts.files.append(File(f"secret/env-{index}.conf", variables.module, _PRIVATE, True))
        return (
            f'    modules=(--module "$DIR/secret/env-{index}.conf")\n'
            f"    merged=({quote_all(variables.options)})\n"
        )
    if runtime in APPTAINER:
        field = f"pod.spec containers[{container.name}].env"
        script, odd = apptainer_script(env, runtime, field)
        if container.message_path == _MESSAGE_PATH:
            script = f"{_LINK_MESSAGE}{script}"
        parts.files.append(File(f"secret/env-{index}.sh", script.encode(), _PRIVATE, True))
        env = {}
    elif any(map(is_odd, env)):
        odd = [f"{name}={value}" for name, value in env.items() if is_odd(name)]
        env = {name: value for name, value in env.items() if not is_odd(name)}
    lines = ""
    for name, entries in (("env", list(map("=".join, env.items()))), ("odd", odd)):
        if entries:
            text = quote_all(entries, "\n        ")
            lines += f"    {name}=(\n        {text}\n    )\n"
    if odd:
        parts.needs.add("odd")
    return lines


def _variables(context: ScriptContext, container: Container) -> dict[str, str]:
    """Merge the pod's, the site's and the container's own variables: the last one wins."""
    env = {"HOSTNAME": context.pod.hostname, **context.config.environment.set}
    if context.annotations.pod_ip:
        env["POD_IP"] = context.annotations.pod_ip
    env.update(container.env)
    return env


def _image(
    context: ScriptContext, index: int, container: Container, parts: ScriptParts
) -> tuple[str, list[str]]:
    """Return the runtime's name of the image, and the lines with its other settings."""
    config = context.config
    field = f"pod.spec containers[{container.name}].image"
    root = context.annotations.image_root
    image = images.find(container.image, config.runtime.name, config.images, root, field)
    lines = [f"pull={container.pull_policy} file={quote(image.file)}"]
    if container.pull_policy == "Always":
        parts.needs.add("always")
    if image.file and not image.registry:
        parts.needs.add("archives")
    if image.places:
        parts.needs.add("places")
        lines.append(f"places=({quote_all(image.places)})")
    login = context.logins.find(image.registry) if image.registry and context.logins else None
    if login is not None:
        parts.needs.add("login")
        parts.files.append(File(f"secret/login-{index}", login.lines(), _PRIVATE, True))
        parts.files.append(File(f"secret/login-{index}.json", login.document(), _PRIVATE, True))
        lines.append(f"login=login-{index}")
    return image.reference, lines


def _settings(context: ScriptContext, container: Container, needs: set[str]) -> list[str]:
    lines = []
    if container.kind == SIDECAR:
        needs |= {"sidecars", "restarts"}
    if container.working_dir:
        lines.append(f"workdir={quote(posixpath.join('/', container.working_dir))}")
    if container.message_from_logs:
        needs.add("message_from_logs")
        lines.append("message=logs")
    if container.message_path != _MESSAGE_PATH:
        needs.add("message_paths")
        lines.append(f"message_path={quote(container.message_path)}")
    if "memory" in container.limits:
        needs.add("memory")
        lines.append(f"memory={byte_count(container.limits['memory'])}")
    cpu = cpu_milli(container.limits.get("cpu", "0"))
    if cpu and context.config.runtime.name == "podman":
        needs.add("cpus")
        lines.append(f"cpus={cpu / 1000:g}")
    lines += _runtime_settings(container, context.config, needs)
    flags = context.annotations.mpi_flags
    if flags is not None and container.kind == MAIN:
        lines.append(f'launcher=(mpiexec -np "${{SLURM_NTASKS:-1}}" {quote_all(flags)})')
    return lines


def _runtime_settings(container: Container, config: BuildConfig, needs: set[str]) -> list[str]:
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
        lines.append(f"capabilities=({quote_all(flags)})")
    return lines


def _gpu(container: Container, config: BuildConfig) -> str:
    """Return the runtime's option for GPUs; empty if none."""
    if config.runtime.gpu == "never":
        return ""
    vendor = "nvidia" if config.runtime.gpu == "always" else ""
    name = ""
    for name, amount in {**container.requests, **container.limits}.items():
        if is_gpu(name) and amount != "0":
            vendor = gpu_vendor(name)
            break
    choices = _PODMAN_DEVICES if config.runtime.name == "podman" else _APPTAINER_FLAGS
    if vendor and vendor not in choices and config.runtime.name in APPTAINER:
        field = f"pod.spec containers[{container.name}].resources"
        raise PodRejected(field, f"{config.runtime.name} cannot hand {name} to a container")
    return choices.get(vendor, "")


def _binds(context: ScriptContext, container: Container, needs: set[str]) -> list[str]:
    """Return the mounts, parents before children whatever the order in the pod."""
    lines = _binds_of_annotations(context, needs) if context.annotations.mounts else []
    mounts = container.mounts
    if len(mounts) > 1:
        mounts = tuple(sorted(mounts, key=_depth))
        if _are_nested(mounts):
            needs.add("nested")
    for volume, path, read_only, sub_path in mounts:
        source = context.volumes[volume]
        if source.check:
            lines.append(source.check)
        mode = "ro" if read_only or source.read_only else "rw"
        line = f"bind {source.word} {quote(path)} {mode}"
        if sub_path:
            # What is in files, no pod can write to.
            needs |= {"sub_paths"} if source.files else {"sub_paths", "pins"}
            line = f"{line} {quote(sub_path)}"
        lines.append(line)
    if container.working_dir:
        working_dir = posixpath.join("/", container.working_dir)
        if any(working_dir.startswith(mount.path + "/") for mount in container.mounts):
            needs.add("workdirs")
            lines.append("make_workdir")
    # Apptainer's --bind splits at the first two of these and unquotes at the third.
    text = "".join(lines)  # quotes add none of these characters to the paths
    if "," in text or ":" in text or "\\" in text:
        needs.add("odd_paths")
    return lines


def _binds_of_annotations(context: ScriptContext, needs: set[str]) -> list[str]:
    needs.add("nested")
    lines = []
    for bind in context.annotations.mounts:
        source = context.volumes[bind.source]
        if source.check:
            lines.append(source.check)
        mode = "ro" if bind.read_only or source.read_only else "rw"
        lines.append(f"bind {source.word} {quote(bind.target)} {mode}")
    return lines


def _depth(mount: Mount) -> int:
    return mount.path.count("/")


def _are_nested(mounts: Iterable[Mount]) -> bool:
    paths = sorted([mount.path + "/" for mount in mounts])
    return any(map(str.startswith, paths[1:], paths))


def _actions(index: int, container: Container, parts: ScriptParts) -> list[str]:
    """Return which probes and hooks there are; each action is a bash function of its own."""
    lines: list[str] = []
    actions: list[Action] = []
    probes = (
        ("startup", container.startup),
        ("liveness", container.liveness),
        ("readiness", container.readiness),
    )
    hooks = (("post_start", container.post_start), ("pre_stop", container.pre_stop))
    found = [(name, probe) for name, probe in probes if probe]
    if found:
        parts.needs.add("probes")
        lines.append(f"probes={quote(' '.join([name for name, _ in found]))}")
    for name, probe in found:
        actions.append(probe.action)
        line = f"{name}_{index}() {{ {_action_line(probe.action)} {_probe_numbers(probe)}; }}\n"
        parts.actions.append(line)
    used = [(name, action) for name, action in hooks if action]
    if used:
        parts.needs.add("hooks")
        lines.append(f"hooks={quote(' '.join([name for name, _ in used]))}")
    for name, action in used:
        actions.append(action)
        parts.actions.append(f"{name}_{index}() {{ {_action_line(action)}; }}\n")
    if any(action.kind == "exec" for action in actions):  # they run inside the container
        parts.needs.add("joined")
        lines.append("shared=1")
    return lines


def _action_line(action: Action) -> str:
    host = action.host or "127.0.0.1"
    headers = [f"{name}: {value}" for name, value in action.headers]
    arguments = {
        "exec": ["exec", *action.command],
        "sleep": ["sleep", str(action.seconds)],
        "tcp": ["tcp", host, str(action.port)],
        "http": ["http", action.scheme, host, str(action.port), action.path, *headers],
    }[action.kind]
    return f"action=({quote_all(arguments)})"


def _probe_numbers(probe: Probe) -> str:
    grace = "" if probe.grace_period_s is None else probe.grace_period_s
    return (
        f"initial={probe.initial_delay_s} period={probe.period_s} timeout={probe.timeout_s} "
        f"successes={probe.success_threshold} failures={probe.failure_threshold} grace={grace}"
    )
