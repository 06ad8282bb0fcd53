"""The settings of a site: the dataclasses are the only list of the keys.

The text under a field says what it means; the sample file and docs/submitter.md follow from it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple, Optional

from templates.program.settings import Logging, Nats
from templates.settings.types import (
    REQUIRED,
    Count,
    CountOrZero,
    Kind,
    Path,
    Quantity,
    Word,
    elsewhere,
)
from templates.site.build_config import BuildConfig

PROGRAM = "interlink-submitter"  # how NATS knows us


@dataclass(frozen=True)
class Policy:
    """The limits of pods in this pool; checked here, whatever the cluster has checked before."""

    namespaces: Optional[tuple[Word, ...]] = None
    """Namespaces whose pods may run here, as shell patterns; to be written with runtime host."""
    images: tuple[Word, ...] = ("*",)
    """Images that may run here, as shell patterns of their full names (registry.example.org/*).

    Docker Hub's may be named in short, library/* or python:*. A file or directory of the site is an
    image only below a place of build.images or host_paths, or if an item besides * names it
    (/cvmfs/*): a container sees all that it holds.
    """
    runtimes: tuple[Word, ...] = ("*",)
    """Runtimes that scripts may have been built for."""
    annotations: tuple[Word, ...] = ("*",)
    """Job annotations that may be used, of those that build.rules allows: patterns of names."""
    forbidden_annotations: tuple[Word, ...] = ()
    """These are refused, whatever ``annotations`` says."""
    forbidden_flags: tuple[Word, ...] = ()
    """Flags of the batch system that a pod's flags annotation must not contain."""
    host_paths: Optional[tuple[Path, ...]] = None
    """Mounted paths must be one of these or below one; by default those that ``build`` has.

    That goes for hostPath volumes, singularity-mounts, and --bind, --volume and --mount in
    singularity-options.
    """
    privileged: bool = False
    """Whether privileged containers, added capabilities and all options may be had."""
    runtime_options: tuple[Word, ...] = (
        "--cleanenv",
        "--contain",
        "--containall",
        "--env=*=*",
        "--nv",
        "--pwd=*",
        "--rocm",
        "--shm-size=*",
        "--ulimit=*",
    )
    """What singularity-options may hold, as shell patterns; other options need ``privileged``.

    --env=*=* stands for an option with a value, --nv for one without.
    """
    cpu: Optional[Annotated[str, Kind.CPU]] = None
    """The most cores of one pod."""
    memory: Optional[Annotated[str, Kind.BYTES]] = None
    """The most memory of one pod."""
    gpus: Optional[CountOrZero] = None
    """The most GPUs of one pod."""
    wall_time_s: Optional[Count] = None
    """The longest a pod may ask to run; pods that name no deadline are not refused by it."""


@dataclass(frozen=True)
class Timing:
    """How often things happen; the defaults suit a site of thousands of jobs."""

    poll_s: Count = 5
    """Between two queries of the batch system, for all jobs together."""
    spool_s: Count = 1
    """Between two looks at the records that running jobs have dropped."""
    heartbeat_s: Count = 5
    """Between two signs of life."""
    resources_s: Count = 10
    """Between two publications of what the pool offers; kueue-nats may need it more often."""
    lost_after_s: Count = 120
    """How long a job must be missing, in every place it could be, before it is given up."""
    keep_deleted_s: Count = 3600
    """How long a deleted pod is remembered, so that a late create of it is refused."""
    keep_orphans_s: Count = 7 * 24 * 3600
    """When a finished job that nobody has deleted is removed."""


@dataclass(frozen=True)
class Pool:
    """One pool: the name that pods' tolerations say, and the batch system behind it."""

    name: Annotated[str, Kind.TOKEN] = field(default="", metadata=REQUIRED)
    """The pool's name; NATS subjects hold it, and the tolerations of pods."""
    directory: Path = field(default="", metadata=REQUIRED)
    """Where jobs live; on a file system that the nodes share with this machine."""
    backend: Word = "host"
    """Which batch system: slurm, htcondor, kubernetes, or, on this very machine, podman or host."""
    options: Mapping[str, object] = field(default_factory=dict)
    """Options of the backend: see docs/backends.md and the backend's own page there."""
    resources: Mapping[Word, Quantity] = field(default_factory=dict)
    """What the pool offers (cpu, memory, pods, nvidia.com/gpu, ...); replaces what is found out."""
    labels: Mapping[Word, Word] = field(default_factory=dict)
    """Labels of the pool's Kueue flavor."""
    taints: tuple[Annotated[str, Kind.TAINT], ...] = ()
    """Taints of the pool's Kueue flavor: key=value:effect."""
    build: BuildConfig = field(
        default_factory=BuildConfig,
        metadata=elsewhere("keys of docs/build-config.md, or the path of a file with them"),
    )
    """How scripts are built; a path may be relative to the folder of this file."""
    policy: Policy = field(default_factory=Policy)
    """What pods may ask for."""
    timing: Timing = field(default_factory=Timing)
    """How often things happen."""


@dataclass(frozen=True)
class Settings:
    """The whole file, submitter.yaml."""

    nats: Nats = field(default_factory=Nats, metadata=REQUIRED)
    """How to reach NATS."""
    pools: tuple[Pool, ...] = field(default=(), metadata=REQUIRED)
    """The pools that this submitter serves."""
    logging: Logging = field(default_factory=Logging)
    """What is logged."""


class Supervisor(NamedTuple):
    """How systemd, or a container's probes, are notified of our status."""

    notify_socket: str = ""
    watchdog_s: float = 0  # it ends us after so long without a sign of life; 0: never
    status_file: str = ""  # what we are doing, for the probes of a container


def take_supervisor() -> Supervisor:
    """Return what our environment names, and remove it there, so that no job ever sees it."""
    names = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "INTERLINK_STATUS_FILE")
    address, limit, process, file = (os.environ.pop(name, "") for name in names)
    is_ours = process in ("", str(os.getpid())) and limit.isascii() and limit.isdigit()
    return Supervisor(address, int(limit) / 1e6 if is_ours else 0, file)


def environment_with(added: Mapping[str, str], unwanted: Iterable[str]) -> dict[str, str]:
    """Return our environment for another program, without and with some variables.

    Those that begin with one of ``unwanted`` are left out, those of ``added`` are set.
    """
    prefixes = tuple(unwanted)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    return {**kept, **added}


def read_variables(names: Iterable[str]) -> dict[str, str]:
    """Return those of these variables that our environment has."""
    return {name: os.environ[name] for name in names if name in os.environ}
