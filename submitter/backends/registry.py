"""The registry of batch systems, by their names in the configuration."""

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


def load_class(pool: Pool) -> type[Backend]:
    """Import and return the backend class of a pool."""
    place = BACKENDS.get(pool.backend)
    if place is None:
        known = ", ".join(sorted(BACKENDS))
        raise ConfigError(f"pool {pool.name}: backend", f"must be one of {known}")
    module, _, name = place.partition(":")
    try:
        found: type[Backend] = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        message = f"{pool.backend} needs the Python package {error.name}, which is not installed"
        raise ConfigError(f"pool {pool.name}: backend", message) from None
    return found


def make_backend(pool: Pool, ask: AskNats = not_connected) -> Backend:
    """Return the backend of a pool."""
    return load_class(pool)(pool, ask)


def load_class_or_base(pool: Pool) -> type[Backend]:
    """Return the backend class of a pool; ``Backend`` if it has none: ``make_backend`` raises."""
    try:
        return load_class(pool)
    except ConfigError:
        return Backend
