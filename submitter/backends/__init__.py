"""The batch systems, one module each: what to run, and how to read what it prints."""

from __future__ import annotations

import importlib

from submitter.backends.base import Backend
from submitter.settings import Pool
from templates.errors import ConfigError

BACKENDS = {
    "host": "submitter.backends.host:Host",
    "htcondor": "submitter.backends.htcondor:HTCondor",
    "podman": "submitter.backends.podman:Podman",
    "slurm": "submitter.backends.slurm:Slurm",
}
"""Name in the configuration -> module and class; only the one in use is imported."""


def make(pool: Pool) -> Backend:
    """The batch system that a pool names."""
    place = BACKENDS.get(pool.backend)
    if place is None:
        known = ", ".join(sorted(BACKENDS))
        raise ConfigError(f"pool {pool.name}: backend", f"must be one of {known}")
    module, _, name = place.partition(":")
    made: Backend = getattr(importlib.import_module(module), name)(pool)
    return made
