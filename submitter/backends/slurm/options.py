"""The settings of a site's Slurm: the keys of ``options`` of a pool with ``backend: slurm``.

The dataclasses are the only list of the keys; the table in docs/slurm.md follows from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Optional

from submitter.backends.slurm import flags as slurm_flags
from submitter.common.errors import Forbidden
from templates.common.errors import ConfigError
from templates.settings.schema import SettingsSchema
from templates.settings.types import REQUIRED, Choice, Count, CountOrZero, Kind, Word

Argument = Annotated[str, Kind.ARGUMENT]
Program = Argument


@dataclass(frozen=True)
class SlurmPrograms:
    """Slurm's own programs: names to be found on PATH, or absolute paths."""

    sbatch: Program = "sbatch"
    """Submits jobs."""
    squeue: Program = "squeue"
    """Says what becomes of them."""
    scancel: Program = "scancel"
    """Ends them."""
    sacct: Program = "sacct"
    """Says how they ended, where there is accounting."""
    scontrol: Program = "scontrol"
    """Says how Slurm is set up."""
    sinfo: Program = "sinfo"
    """Says what the nodes have."""
    sacctmgr: Program = "sacctmgr"
    """Says how many jobs the user may have, where there is accounting."""


@dataclass(frozen=True)
class Flavor:
    """One way of running jobs at the site; a job gets the first one that it fits into."""

    name: Annotated[str, Kind.TOKEN] = field(default="", metadata=REQUIRED)
    """Its name, for messages, and for the pod's annotation ``flavor``."""
    partition: Word = ""
    """Its partition."""
    account: Word = ""
    """Its account."""
    qos: Word = ""
    """Its quality of service."""
    reservation: Word = ""
    """Its reservation."""
    constraint: Word = ""
    """Features that its nodes have (a100&ib)."""
    flags: tuple[Argument, ...] = ()
    """Further flags of sbatch, one each (--nodelist=n[1-4]); they win over what pods ask for."""
    min_gpus: CountOrZero = 0
    """Jobs with fewer GPUs do not get it: 1 keeps others away from nodes with GPUs."""
    max_cpu: Optional[Annotated[str, Kind.CPU]] = None
    """The most cores of a job in it."""
    max_memory: Optional[Annotated[str, Kind.BYTES]] = None
    """The most memory of a job in it, on all nodes together."""
    max_gpus: Optional[CountOrZero] = None
    """The most GPUs of a job in it."""
    max_wall_time_s: Optional[Count] = None
    """The longest time limit of a job in it; asked for where the pod names no deadline."""


@dataclass(frozen=True)
class Options:
    """The options of a pool; none has to be given."""

    programs: SlurmPrograms = field(default_factory=SlurmPrograms)
    """Slurm's own programs: names to be found on PATH, or absolute paths."""
    prefix: tuple[Argument, ...] = ()
    """Words put before each of these programs, such as a wrapper and its options."""
    environment: Mapping[Annotated[str, Kind.VARIABLE], str] = field(default_factory=dict)
    """Further variables for these programs (SLURM_CONF)."""
    timeout_s: Count = 60
    """How long one of these programs may take."""
    user: Word = ""
    """Whose jobs they are, where a wrapper submits as another user; empty: the submitter's."""
    accounting: Annotated[str, Choice(("auto", "on", "off"))] = "auto"
    """Whether sacct and sacctmgr are of use; auto: as Slurm's configuration says."""
    flavors: tuple[Flavor, ...] = ()
    """Ways of running jobs, the first one that fits counts; none: Slurm's own defaults."""
    flags: tuple[Argument, ...] = ()
    """Flags of sbatch for every job, one each; they win over what pods ask for."""
    gres: Mapping[Word, Word] = field(default_factory=lambda: {"nvidia.com/gpu": "gpu"})
    """What resources of pods are called in Slurm (gpu, gpu:a100, gpu:1g.5gb, ...)."""
    gpu_flag: Annotated[str, Choice(("gres", "gpus"))] = "gres"
    """How GPUs are asked for: by --gres (on each node), or by --gpus (in all)."""
    export: tuple[Word, ...] = ("HOME", "USER", "LOGNAME", "SHELL", "PATH")
    """Variables of the submitter that jobs begin with; Slurm adds its own."""
    wall_time_margin_s: CountOrZero = 300
    """Added to a pod's deadline and grace period: for images, volumes and the last records."""
    warning_s: CountOrZero = 60
    """How long before its time limit a job is told to end (--signal=B:TERM@60); 0: not at all."""
    partitions: tuple[Word, ...] = ()
    """Whose nodes are offered; empty: the flavors' partitions, or else the default one."""
    capacity: Annotated[str, Choice(("total", "free"))] = "total"
    """Of these nodes: all that they have, or what is free and what our own jobs have."""
    pods: Optional[Count] = None
    """How many jobs are offered at most; not given: as the user's limits say."""


_FORM = SettingsSchema(Options(), strict=True)


def load(raw: Mapping[str, object], pool: str) -> Options:
    """Return the options of a pool; raise ``ConfigError`` for the first that is wrong."""
    field_name = f"pool {pool}: options"
    options: Options = _FORM.load(dict(raw), field_name)
    for key, error in _find_errors(options):
        raise ConfigError(f"{field_name}: {key}", error)
    return options


def _find_errors(options: Options) -> Iterator[tuple[str, str]]:
    seen = set()
    for number, flavor in enumerate(options.flavors):
        if flavor.name in seen:
            yield f"flavors[{number}].name", "is that of another flavor, too"
        seen.add(flavor.name)
        yield from _find_flag_errors(flavor.flags, f"flavors[{number}].flags")
    yield from _find_flag_errors(options.flags, "flags")
    for name in options.export:
        if not name.replace("_", "a").isalnum():
            yield "export", f"{name} is no name of a variable"


def _find_flag_errors(flags: Iterable[str], key: str) -> Iterator[tuple[str, str]]:
    try:
        slurm_flags.parse(flags, "")
    except Forbidden as error:
        yield key, str(error)[2:]
