"""The settings of a machine that runs jobs itself: ``options`` with ``backend: host``.

The dataclass is the only list of the keys; the table in docs/backends.md follows from it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Optional

from submitter.config.settings import Pool
from templates.common.constants import AMD_GPU, INTEL_GPU, INTEL_GPU_I915, NVIDIA_GPU
from templates.common.errors import ConfigError
from templates.common.quantity import count
from templates.settings.schema import SettingsSchema
from templates.settings.types import Choice, Kind, Quantity, Word

PODS = "110"
# Variables that tell programs which GPUs are theirs, and their values for programs without any.
VARIABLES = {
    NVIDIA_GPU: {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"},
    AMD_GPU: {"ROCR_VISIBLE_DEVICES": ""},
    INTEL_GPU: {"ZE_AFFINITY_MASK": ""},
    INTEL_GPU_I915: {"ZE_AFFINITY_MASK": ""},
}


@dataclass(frozen=True)
class Options:
    """The options of a pool; none has to be given."""

    cpu: Optional[Annotated[str, Kind.CPU]] = None
    """Cores that jobs may ask for together; not given: those that the submitter may use."""
    memory: Optional[Annotated[str, Kind.BYTES]] = None
    """Memory that jobs may ask for together; not given: the machine's."""
    pods: Quantity = PODS
    """Jobs at the same time."""
    gpus: tuple[Word, ...] = ()
    """GPUs, each for one job at a time, as their makers name them; a number alone: from 0 on."""
    gpu_resource: Annotated[str, Choice(tuple(VARIABLES))] = NVIDIA_GPU
    """By which name pods ask for them."""


_FORM = SettingsSchema(Options(), strict=True)


def load(pool: Pool) -> Options:
    """Return the options of a pool; raise ``ConfigError`` for the first that is wrong."""
    field = f"pool {pool.name}: options"
    raw = dict(pool.options)
    gpus = raw.get("gpus")
    if type(gpus) is int:
        if gpus < 0:
            raise ConfigError(f"{field}: gpus", "must not be negative")
        gpus = list(range(gpus))
    if type(gpus) is list:
        raw["gpus"] = [str(one) if type(one) is int else one for one in gpus]
    options: Options = _FORM.load(raw, field)
    for key, error in _find_errors(options, pool.resources):
        raise ConfigError(f"{field}: {key}", error)
    return options


def _find_errors(options: Options, resources: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the keys and errors that the checks of single values cannot find."""
    if len(set(options.gpus)) < len(options.gpus):
        yield "gpus", "names one of them twice"
    for one in options.gpus:
        if "," in one:
            yield "gpus", f"{one}: must be one GPU"
    offered = resources.get(options.gpu_resource)
    if options.gpus and offered is not None and count(offered) > len(options.gpus):
        yield "gpus", f"are {len(options.gpus)}, and resources offer {offered}"


def read_offer(options: Options, resources: Mapping[str, str]) -> dict[str, str]:
    """Return the machine's own resources, unless the options or the pool's resources differ."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    own = {
        "cpu": options.cpu or str(len(os.sched_getaffinity(0))),
        "memory": options.memory or str(memory),
        "pods": options.pods,
    }
    if options.gpus:
        own[options.gpu_resource] = str(len(options.gpus))
    return {**own, **resources}


def gpu_environment(options: Options, gpus: Sequence[str]) -> list[str]:
    """Return variables that tell a job's programs which GPUs are theirs, as NAME=VALUE."""
    if not options.gpus:
        return []
    mine = ",".join(gpus)
    named = VARIABLES[options.gpu_resource].items()
    return [f"{name}={mine or none}" for name, none in named]
