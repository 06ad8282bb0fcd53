"""The text of job.sh and of the files that it reads.

job.sh has two halves. The first describes the pod and is made for each one; the second, the
functions, depends only on the site and on which of them the pod needs, and is rendered once for
each such choice. What may be secret (commands, environments, probes) is in secret/pod.sh instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from templates import __version__
from templates.common.quoting import quote, quote_all
from templates.job.model import File
from templates.pod.model import Pod
from templates.resolve.annotations import JobAnnotations
from templates.resolve.credentials import Logins
from templates.resolve.volumes import VolumeSource, resolve_paths, resolve_volumes
from templates.script.containers import ScriptContext, ScriptParts, add_container
from templates.script.functions import APPTAINER, render_functions, site_facts
from templates.site.build_config import BuildConfig

_PRIVATE = 0o600
_EXPLANATION = f"""written by interlink-nats {__version__}. Start it with
#     job.sh [JOB_DIRECTORY [SPOOL_DIRECTORY]]
# Beside it: secret/ (gone when the job has ended), volumes/, logs/, records (what was reported).
# shellcheck disable=SC1091,SC2016,SC2034,SC2046,SC2086,SC2100,SC2154,SC2163,SC2317,SC2329
"""
_CONTAINMENT = frozenset(("--contain", "--containall", "--no-mount=tmp"))


def render(
    job: str, pod: Pod, config: BuildConfig, annotations: JobAnnotations
) -> tuple[str, tuple[File, ...]]:
    """Return job.sh, and all files beside it."""
    volumes = resolve_volumes(pod, config)
    if annotations.mounts:  # no volume has the name of a path
        volumes.update(resolve_paths([mount.source for mount in annotations.mounts], config))
    files = [file for source in volumes.values() for file in source.files]
    if config.runtime.name == "podman" and any(c.security.run_as_user for c in pod.containers):
        files = [file._replace(mode=file.mode | (file.mode & 0o500) >> 3) for file in files]
    context = ScriptContext(
        pod, config, annotations, volumes, Logins(pod) if pod.pull_secrets else None
    )
    parts = ScriptParts(files, _pod_needs(context), [], [], [])
    for index, container in enumerate(pod.containers):
        add_container(context, index, container, parts)
    files.append(File("secret/pod.sh", _secret_script(parts).encode(), _PRIVATE, True))
    files += _extra_files(config, pod, annotations)
    functions = render_functions(site_facts(config), frozenset(parts.needs))
    return f"{_head(job, context)}{''.join(parts.functions)}{functions}", tuple(files)


def _head(job: str, context: ScriptContext) -> str:
    """Return the settings of the whole pod. Names need no quotes: they were checked."""
    pod, config = context.pod, context.config
    script, runtime = config.script, config.runtime
    deadline = "" if pod.deadline_s is None else f"DEADLINE={pod.deadline_s}\n"
    given = _options(config)
    if context.annotations.mpi_flags is not None:
        # Its ranks are containers of their own, and meet in the node's /tmp, /dev and processes.
        given = [option for option in given if option not in _CONTAINMENT]
    options = quote_all([*_network(job, context), *given, *context.annotations.options])
    containers = " ".join([f"{c.kind}:{c.name}" for c in pod.containers])
    return (
        f"#!{script.bash}\n# Pod {pod.namespace}/{pod.name} as a batch job, {_EXPLANATION}\n"
        f"JOB={job}\nNAMESPACE={pod.namespace} POD={pod.name}\n"
        f"RUNTIME={quote(runtime.executable or runtime.name)} OPTIONS=({options})\n"
        f"RESTART={pod.restart_policy} GRACE={pod.grace_period_s} "
        f"BACKOFF={script.restart_backoff_s} BACKOFF_MAX={script.restart_backoff_max_s}\n"
        f"{deadline}CONTAINERS=({containers})\n{_pod_options(context)}"
        f"{_volumes_function(context.volumes)}\n"
        "# ---- What is to run; the commands and environments are in secret/pod.sh ----\n"
    )


def _secret_script(parts: ScriptParts) -> str:
    head = (
        "# Commands and environments of the containers, read by job.sh. "
        "Removed when the job has ended.\n"
    )
    return "".join((head, *parts.secrets, *parts.actions))


def _pod_needs(context: ScriptContext) -> set[str]:
    """Return which of functions.NEEDS the pod has whatever its containers are."""
    pod, annotations, given = context.pod, context.annotations, context.config.script
    conditions = {
        "header": given.header,
        "footer": given.footer,
        "restarts": pod.restart_policy != "Never",
        "deadline": pod.deadline_s is not None,
        "hosts": pod.host_aliases,
        "binds": context.volumes or annotations.mounts,
        "container_commands": annotations.singularity_commands,
        "mpi": annotations.mpi_flags is not None,
        "pre_exec": annotations.pre_exec,
        "tunnel": annotations.tunnel_commands,
        "own_network": context.own_network,
        "pod": context.own_network and len(pod.containers) > 1,
    }
    found = {name for name, value in conditions.items() if value}
    for source in context.volumes.values():
        _add_volume_needs(source, found)
    return found


def _add_volume_needs(source: VolumeSource, needs: set[str]) -> None:
    if source.empty_dir:
        needs.add("empty_dirs")
        if source.in_memory:
            needs.add("memory_dirs")
        if source.size_limit:
            needs.add("sizes")
    if source.check:
        needs.add("host_paths")
    if source.pinned:
        needs.add("pins")


def _options(config: BuildConfig) -> list[str]:
    """Return the runtime's options for every container start; the pod may add its own."""
    options: list[str] = []
    if config.runtime.name in APPTAINER:
        flags = config.apptainer
        options.append("--containall" if flags.containall else "--contain")
        for name in ("fakeroot", "userns", "uts", "no_init", "no_home", "no_privs", "unsquash"):
            if getattr(flags, name):
                options.append(f"--{name.replace('_', '-')}")
        if flags.tmp_dir == "none":
            options.append("--no-mount=tmp")
        if flags.tmp_dir == "bind":
            options += ["--bind=/tmp", "--bind=/var/tmp"]
    return [*options, *config.runtime.options]


def _network(job: str, context: ScriptContext) -> tuple[str, ...]:
    """Return podman's options for the network and the host name of a container."""
    if context.config.runtime.name != "podman":
        return ()
    if not context.own_network:
        return ("--network=host",)
    if len(context.pod.containers) > 1:
        return (f"--pod={job}",)
    return _own_network(context)


def _own_network(context: ScriptContext) -> tuple[str, ...]:
    return f"--network={context.config.podman.network}", f"--hostname={context.pod.hostname}"


def _pod_options(context: ScriptContext) -> str:
    """Return the options of a podman pod, for containers that share a network of their own."""
    if not context.own_network or len(context.pod.containers) == 1:
        return ""
    return f"POD_OPTIONS=({quote_all(_own_network(context))})\n"


def _volumes_function(volumes: Mapping[str, VolumeSource]) -> str:
    """Return the function that names the emptyDir directories; empty if there are none."""
    empty = [source for source in volumes.values() if source.empty_dir]
    if not empty:
        return ""
    lines = f"    EMPTY_DIRS=({' '.join([source.word for source in empty])})\n"
    sized = [source for source in empty if source.size_limit]
    if sized:
        lines += f"    SIZED=({' '.join([source.word for source in sized])})\n"
        lines += f"    SIZES=({' '.join([str(source.size_limit) for source in sized])})\n"
    return f"\nlist_volumes() {{\n{lines}}}\n"


def _extra_files(config: BuildConfig, pod: Pod, annotations: JobAnnotations) -> Iterator[File]:
    """Yield the files beside secret/pod.sh that the site or the pod asks for."""
    if pod.host_aliases:
        lines = "".join(f"{ip}\t{' '.join(names)}\n" for ip, names in pod.host_aliases)
        yield File("hosts", f"# From the pod's hostAliases.\n{lines}".encode(), 0o644, False)
    texts = (
        ("header.sh", config.script.header, False),
        ("footer.sh", config.script.footer, False),
        ("secret/pre-exec.sh", annotations.pre_exec, True),
        ("secret/container-commands.sh", annotations.singularity_commands, True),
        ("secret/tunnel.sh", annotations.tunnel_commands, True),
    )
    for path, text, secret in texts:
        if text:
            yield File(path, text.encode() + b"\n", _PRIVATE, secret)
