"""The text of job.sh and of the files that it reads.

job.sh has two halves. The first says what is to run and is made for each pod; the second, the
functions, depends only on the site and on which of them the pod needs, and is rendered once for
each such choice. What may be secret (commands, environments, probes) is in secret/pod.sh instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from templates import __version__
from templates.annotations import JobAnnotations
from templates.build_config import BuildConfig
from templates.container_script import Gathered, Site, add_secret, container_functions
from templates.library import APPTAINER, library, site_facts
from templates.per_site import per_site
from templates.pod import Pod
from templates.shaped_volumes import Filled, fill_volumes
from templates.shapes import GAP, once, token_volume
from templates.shell import Word, quote, words
from templates.volumes import File, Source, sources

_PRIVATE = 0o600
_LONGEST_ROOT = 256  # of an image root that what is kept of scripts is found by
_EXPLANATION = f"""written by interlink-nats {__version__}. Start it with
#     job.sh [JOB_DIRECTORY [SPOOL_DIRECTORY]]
# Beside it: secret/ (gone when the job has ended), volumes/, logs/, records (what was reported).
# shellcheck disable=SC1091,SC2016,SC2034,SC2046,SC2086,SC2100,SC2154,SC2163,SC2317,SC2329
"""
_CONTAINMENT = frozenset(("--contain", "--containall", "--no-mount=tmp"))
# Sourced by the runtime inside the container, before the command: /dev cannot be mounted into.
_CONTAINER_ENV = (
    b"for interlink_ln in /bin/ln /usr/bin/ln; do\n"
    b"    $interlink_ln -s /.interlink/message /dev/termination-log 2>/dev/null && break\n"
    b"done || :\n"
    b"unset interlink_ln\n"
)
_OF_APPTAINER = (File("container-env.sh", _CONTAINER_ENV, 0o644, False),)


class _SiteText(NamedTuple):
    """What the first half of every job.sh of a site has in common."""

    first: str  # up to the name of the pod
    runtime: str
    options: tuple[str, ...]
    backoff: str
    needs: frozenset[str]  # of library.NEEDS
    before_hosts: tuple[File, ...]
    after_hosts: tuple[File, ...]


def write(
    job: str, pod: Pod, config: BuildConfig, annotations: JobAnnotations
) -> tuple[str, tuple[File, ...]]:
    """job.sh, and everything that has to lie beside it."""
    filled = fill_volumes(pod, config)
    files = filled.files
    if config.runtime.name == "podman" and any(c.security.run_as_user for c in pod.containers):
        files = [file._replace(mode=file.mode | (file.mode & 0o500) >> 3) for file in files]
    site = Site(pod, config, annotations, filled.sources or {})
    gathered = Gathered(files, set(), [], [])
    for index, container in enumerate(pod.containers):
        add_secret(site, index, container, gathered)
    own, functions = _what_to_run(job, site, filled, gathered)
    files.append(File("secret/pod.sh", _secret(gathered).encode(), _PRIVATE, True))
    files += _site_files(config, pod, annotations)
    text = (
        f"{_site_text(config).first}{pod.namespace}/{pod.name} as a batch job, {_EXPLANATION}\n"
        f"JOB={job}\nNAMESPACE={pod.namespace} POD={pod.name}\n{own}{functions}"
    )
    return text, tuple(files)


def _what_to_run(job: str, site: Site, filled: Filled, to: Gathered) -> tuple[str, str]:
    """The rest of the first half of job.sh, and the functions; once for the pods of a shape."""
    pod, name = site.pod, token_volume(site.pod)
    if filled.sources is not None:
        return _write_what_to_run(job, site, to)
    if filled.names_pod or not _may_keep(site):
        return _write_what_to_run(job, site._replace(volumes=sources(pod, site.config)), to)

    def make() -> tuple[str, str]:
        volumes = sources(pod, site.config)
        if name in volumes:
            volumes[name] = volumes[name]._replace(word=Word(GAP))
        return _write_what_to_run(job, site._replace(volumes=volumes), to)

    what = site.annotations.image_root, *to.needs, filled.unusual
    own, functions = once(pod, what, site.config, make)
    return own.replace(GAP, filled.token) if filled.token else own, functions


def _may_keep(site: Site) -> bool:
    """Whether it follows from what pods share, and from little besides that is no secret."""
    annotations, secrets = site.annotations, site.pod.secrets
    return (
        annotations.is_plain
        and len(annotations.image_root) <= _LONGEST_ROOT
        and not site.own_network  # which bears the name of the job
        and not any(name in secrets for name in site.pod.pull_secrets)
    )


def _write_what_to_run(job: str, site: Site, to: Gathered) -> tuple[str, str]:
    called = container_functions(site, to)
    needs = frozenset({*to.needs, *_needs_of_the_pod(site)})
    return f"{_facts(job, site)}{called}", library(site_facts(site.config), needs)


def _facts(job: str, site: Site) -> str:
    """Names were checked: what needs quotes for bash is no name."""
    pod, own = site.pod, _site_text(site.config)
    deadline = "" if pod.deadline_s is None else f"DEADLINE={pod.deadline_s}\n"
    given = own.options
    if site.annotations.mpi_flags is not None:
        # Its ranks are containers of their own, and meet in the node's /tmp, /dev and processes.
        given = tuple([option for option in given if option not in _CONTAINMENT])
    options = words(_network(job, site) + given + site.annotations.options)
    containers = " ".join([f"{c.kind}:{c.name}" for c in pod.containers])
    return (
        f"{own.runtime} OPTIONS=({options})\n"
        f"RESTART={pod.restart_policy} GRACE={pod.grace_period_s} {own.backoff}\n"
        f"{deadline}CONTAINERS=({containers})\n{_pod_options(site)}{_list_volumes(site.volumes)}\n"
        "# ---- What is to run; the commands and environments are in secret/pod.sh ----\n"
    )


def _secret(gathered: Gathered) -> str:
    return (
        "# Commands and environments of the containers, read by job.sh. "
        "Removed when the job has ended.\n"
        f"{''.join(gathered.secrets)}{''.join(gathered.actions)}"
    )


def _needs_of_the_pod(site: Site) -> set[str]:
    """Which of library.NEEDS the pod has whatever its containers are."""
    pod, annotations = site.pod, site.annotations
    found = {*_site_text(site.config).needs, *_needs_of_a_network(site)}
    if pod.restart_policy != "Never":
        found.add("restarts")
    if pod.deadline_s is not None:
        found.add("deadline")
    if pod.host_aliases:
        found.add("hosts")
    if site.volumes or annotations.mounts:
        found.add("binds")
    if annotations.singularity_commands:
        found.add("container_commands")
    if annotations.mpi_flags is not None:
        found.add("mpi")
    if annotations.pre_exec:
        found.add("pre_exec")
    if annotations.tunnel_commands:
        found.add("tunnel")
    for source in site.volumes.values():
        _add_needs_of_a_volume(source, found)
    return found


def _needs_of_a_network(site: Site) -> tuple[str, ...]:
    if not site.own_network:
        return ()
    return ("own_network", "pod") if len(site.pod.containers) > 1 else ("own_network",)


def _add_needs_of_a_volume(source: Source, needs: set[str]) -> None:
    if source.empty_dir:
        needs.add("empty_dirs")
        if source.in_memory:
            needs.add("memory_dirs")
        if source.size_limit:
            needs.add("sizes")
    if source.check:
        needs.add("host_paths")


@per_site
def _site_text(config: BuildConfig) -> _SiteText:
    script, runtime = config.script, config.runtime
    given = (("header", script.header), ("footer", script.footer))
    return _SiteText(
        first=f"#!{script.bash}\n# Pod ",
        runtime=f"RUNTIME={quote(runtime.executable or runtime.name)}",
        options=_options(config),
        backoff=f"BACKOFF={script.restart_backoff_s} BACKOFF_MAX={script.restart_backoff_max_s}",
        needs=frozenset([name for name, text in given if text]),
        before_hosts=_OF_APPTAINER if runtime.name in APPTAINER else (),
        after_hosts=tuple(_texts(*[(f"{name}.sh", text, False) for name, text in given])),
    )


def _options(config: BuildConfig) -> tuple[str, ...]:
    """The runtime's options for every container start; the pod may add its own."""
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
    return (*options, *config.runtime.options)


def _network(job: str, site: Site) -> tuple[str, ...]:
    """Podman's options for the network and the host name of a container."""
    if site.config.runtime.name != "podman":
        return ()
    if not site.own_network:
        return ("--network=host",)
    if len(site.pod.containers) > 1:
        return (f"--pod={job}",)
    return _own_network(site)


def _own_network(site: Site) -> tuple[str, ...]:
    return f"--network={site.config.podman.network}", f"--hostname={site.pod.hostname}"


def _pod_options(site: Site) -> str:
    """What several containers have in common when they do not use the node's network."""
    if not site.own_network or len(site.pod.containers) == 1:
        return ""
    return f"POD_OPTIONS=({words(_own_network(site))})\n"


def _list_volumes(volumes: Mapping[str, Source]) -> str:
    """The function that names the directories of emptyDir volumes; nothing when there are none."""
    empty = [source for source in volumes.values() if source.empty_dir]
    if not empty:
        return ""
    lines = f"    EMPTY_DIRS=({' '.join([source.word for source in empty])})\n"
    sized = [source for source in empty if source.size_limit]
    if sized:
        lines += f"    SIZED=({' '.join([source.word for source in sized])})\n"
        lines += f"    SIZES=({' '.join([str(source.size_limit) for source in sized])})\n"
    return f"\nlist_volumes() {{\n{lines}}}\n"


def _site_files(config: BuildConfig, pod: Pod, annotations: JobAnnotations) -> Iterator[File]:
    own = _site_text(config)
    yield from own.before_hosts
    if pod.host_aliases:
        lines = "".join(f"{ip}\t{' '.join(names)}\n" for ip, names in pod.host_aliases)
        yield File("hosts", f"# From the pod's hostAliases.\n{lines}".encode(), 0o644, False)
    yield from own.after_hosts
    if not annotations.is_plain:
        yield from _texts(
            ("secret/pre-exec.sh", annotations.pre_exec, True),
            ("secret/container-commands.sh", annotations.singularity_commands, True),
            ("secret/tunnel.sh", annotations.tunnel_commands, True),
        )


def _texts(*texts: tuple[str, str, bool]) -> Iterator[File]:
    """Files of bash: path, content, and whether it is secret."""
    for path, text, secret in texts:
        if text:
            yield File(path, text.encode() + b"\n", _PRIVATE, secret)
