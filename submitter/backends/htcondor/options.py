"""The settings of a site's HTCondor: the ``options`` of a pool with ``backend: htcondor``.

The dataclasses are the only list of the keys; the table in docs/htcondor.md follows from them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Optional

from submitter.backends.htcondor.submit_file import NEVER, find_expression_error
from submitter.tokens.options import NO_REDIS, TokenOptions, mistakes
from templates.common.errors import ConfigError
from templates.settings.schema import SettingsSchema
from templates.settings.types import Choice, Count, CountOrZero, Kind, PathOrEmpty, Word

Argument = Annotated[str, Kind.ARGUMENT]
NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class HTCondorPrograms:
    """HTCondor's own programs: names to be found on PATH, or absolute paths."""

    condor_submit: Argument = "condor_submit"
    """Submits jobs."""
    condor_q: Argument = "condor_q"
    """Says what becomes of them."""
    condor_history: Argument = "condor_history"
    """Says how those ended that have left the queue."""
    condor_rm: Argument = "condor_rm"
    """Ends them, and takes them out of the queue."""
    condor_vacate_job: Argument = "condor_vacate_job"
    """Ends them at once."""
    condor_status: Argument = "condor_status"
    """Says what the pool's machines have."""
    condor_transfer_data: Argument = "condor_transfer_data"
    """Brings what jobs of a schedd elsewhere have left."""
    condor_qedit: Argument = "condor_qedit"
    """Says which files that is."""


@dataclass(frozen=True)
class Remote:
    """The schedd of a computing element elsewhere."""

    schedd: Word = ""
    """Its name; empty: the schedd of this machine."""
    collector: Word = ""
    """Its collector: host:port."""
    ca_file: PathOrEmpty = ""
    """Certificates of the CAs that it is believed by; empty: those that HTCondor is told of."""


@dataclass(frozen=True)
class Options:
    """The options of a pool; none has to be given."""

    programs: HTCondorPrograms = field(default_factory=HTCondorPrograms)
    """HTCondor's own programs: names to be found on PATH, or absolute paths."""
    prefix: tuple[Argument, ...] = ()
    """Words put before each of these programs, such as a wrapper and its options."""
    environment: Mapping[Annotated[str, Kind.VARIABLE], str] = field(default_factory=dict)
    """Further variables for these programs (CONDOR_CONFIG)."""
    timeout_s: Count = 60
    """How long one of these programs may take."""
    remote: Remote = field(default_factory=Remote)
    """The schedd of a computing element elsewhere; it needs ``shared: false``."""
    tokens: TokenOptions = field(default_factory=TokenOptions)
    """Tokens by which HTCondor knows us."""
    shared: bool = True
    """Whether the machines see the pool's directory; if not, it is sent to them job by job."""
    stream: bool = True
    """Where it is sent: whether logs and states come back while jobs run, or only at their ends."""
    requirements: Argument = ""
    """An expression that machines must fulfil for every job, besides what a pod asks for."""
    rank: Argument = ""
    """An expression by which machines are preferred, where a pod names none."""
    accounting_group: Word = ""
    """The accounting group of every job, where a pod names none."""
    disk: Annotated[str, Kind.BYTES] = "1Gi"
    """The disk space that a job asks for, where its pod does not."""
    resources: Mapping[Word, Word] = field(default_factory=lambda: {"nvidia.com/gpu": "gpus"})
    """What resources of pods are called in HTCondor: gpus means request_gpus."""
    commands: Mapping[Word, Argument] = field(default_factory=dict)
    """Further commands of the submit description of every job (concurrency_limits: one)."""
    pod_annotations: tuple[Word, ...] = ("accounting-group", "disk", "priority", "rank")
    """What pods may ask for by annotations of HTCondor's, as shell patterns."""
    pod_attributes: tuple[Word, ...] = ()
    """Attributes that pods may set by the annotation attributes, as shell patterns."""
    export: tuple[Annotated[str, Kind.VARIABLE], ...] = ("HOME", "USER", "LOGNAME", "SHELL", "PATH")
    """Variables of the submitter that jobs begin with; HTCondor adds its own."""
    wall_time_margin_s: CountOrZero = 300
    """Added to a pod's deadline and grace period: for images, volumes and the last records."""
    releases: CountOrZero = 3
    """How often HTCondor releases a job again that it holds for a trouble that may pass."""
    keep_s: Count = 7 * 24 * 3600
    """How long an ended job stays in the queue for us to see, should nobody take it out."""
    collector_constraint: Argument = ""
    """An expression for the machines that are offered; empty: all that the collector knows."""
    capacity: Annotated[str, Choice(("total", "free"))] = "total"
    """Of these machines: all that they have, or what is free and what our own jobs have."""
    pods: Optional[Count] = None
    """How many jobs are offered at most; not given: 10000."""


_FORM = SettingsSchema(Options(), strict=True)


def load(raw: Mapping[str, object], pool: str) -> Options:
    """Return the options of a pool; raise ``ConfigError`` for the first that is wrong."""
    field_name = f"pool {pool}: options"
    tokens = raw.get("tokens")
    if isinstance(tokens, Mapping) and "redis" in tokens:
        raise ConfigError(f"{field_name}: tokens.redis", NO_REDIS)
    options: Options = _FORM.load(dict(raw), field_name)
    for key, error in _find_errors(options):
        raise ConfigError(f"{field_name}: {key}", error)
    return options


def _find_errors(options: Options) -> Iterator[tuple[str, str]]:
    yield from mistakes(options.tokens)
    if options.remote.schedd and not options.remote.collector:
        yield "remote.collector", "is missing"
    if options.remote.schedd and options.shared:
        yield "shared", "must be false where remote.schedd is"
    for key in ("requirements", "rank", "collector_constraint"):
        error = find_expression_error(getattr(options, key))
        if getattr(options, key) and error:
            yield key, error
    for name in options.commands:
        plain = name[1:] if name.startswith("+") else name
        if not NAME_PATTERN.fullmatch(plain.replace(".", "_")):
            yield f"commands.{name}", "is no name of a command"
        if name.lower() in NEVER:
            yield f"commands.{name}", f"cannot be changed: {NEVER[name.lower()]}"
    for resource, name in options.resources.items():
        if not NAME_PATTERN.fullmatch(name):
            yield f"resources.{resource}", f"{name} is no name of a resource"
