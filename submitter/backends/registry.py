"""The batch systems, one module each: what to run, and how to read what it prints."""

from __future__ import annotations

import importlib

from submitter.backends.base import Backend
from submitter.common.nats_request import AskNats, not_connected
from submitter.config.settings import Pool
from templates.common.errors import ConfigError

BACKENDS = {
    "host": "submitter.backends.host.backend:HostBackend",
    "htcondor": "submitter.backends.htcondor.backend:HTCondorBackend",
    "kubernetes": "submitter.backends.kubernetes.backend:KubernetesBackend",
    "podman": "submitter.backends.podman.backend:PodmanBackend",
    "slurm": "submitter.backends.slurm.backend:SlurmBackend",
}
"""Name in the configuration -> module and class; only the one in use is imported."""


def class_of(pool: Pool) -> type[Backend]:
    """Return the class of the batch system that a pool names."""
    place = BACKENDS.get(pool.backend)
    if place is None:
        known = ", ".join(sorted(BACKENDS))
        raise ConfigError(f"pool {pool.name}: backend", f"must be one of {known}")
    module, _, name = place.partition(":")
    try:
        found: type[Backend] = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        what = f"{pool.backend} needs the Python package {error.name}, which is not installed"
        raise ConfigError(f"pool {pool.name}: backend", what) from None
    return found


def make(pool: Pool, ask: AskNats = not_connected) -> Backend:
    """Return the batch system that a pool names."""
    return class_of(pool)(pool, ask)


def known_class(pool: Pool) -> type[Backend]:
    """Return the class, or the base of all where there is none: ``make`` says why."""
    try:
        return class_of(pool)
    except ConfigError:
        return Backend
