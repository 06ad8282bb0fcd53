"""The batch systems, one module each: what to run, and how to read what it prints."""

from __future__ import annotations

import importlib

from submitter.asking_nats import AskNats, nobody
from submitter.backends.base import Backend
from submitter.settings import Pool
from templates.errors import ConfigError

BACKENDS = {
    "host": "submitter.backends.host:Host",
    "htcondor": "submitter.backends.htcondor:HTCondor",
    "kubernetes": "submitter.backends.kubernetes:Kubernetes",
    "podman": "submitter.backends.podman:Podman",
    "slurm": "submitter.backends.slurm:Slurm",
}
"""Name in the configuration -> module and class; only the one in use is imported."""


def make(pool: Pool, ask: AskNats = nobody) -> Backend:
    """The batch system that a pool names."""
    place = BACKENDS.get(pool.backend)
    if place is None:
        known = ", ".join(sorted(BACKENDS))
        raise ConfigError(f"pool {pool.name}: backend", f"must be one of {known}")
    module, _, name = place.partition(":")
    try:
        backend = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        what = f"{pool.backend} needs the Python package {error.name}, which is not installed"
        raise ConfigError(f"pool {pool.name}: backend", what) from None
    made: Backend = backend(pool)
    made.reach_nats(ask)
    return made
