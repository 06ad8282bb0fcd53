"""The settings of a site's cluster: the ``options`` of a pool with ``backend: kubernetes``.

The dataclass is the only list of the keys; the table in docs/kubernetes.md follows from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from submitter.config.settings import Pool
from templates.common.errors import ConfigError
from templates.settings.schema import SettingsSchema
from templates.settings.types import Choice, PathOrEmpty, Word
from templates.site.build_config import KUBERNETES

FIXED, QUOTA, NODES = "fixed", "quota", "nodes"


@dataclass(frozen=True)
class Options:
    """The options of a pool; none has to be given."""

    kubeconfig: PathOrEmpty = ""
    """A kubeconfig file of the cluster; empty: the account of the pod that the submitter is in."""
    namespace: Word = "interlink"
    """Where pods are made, and all that belongs to them."""
    capacity: Annotated[str, Choice((FIXED, QUOTA, NODES))] = FIXED
    """What is offered: the pool's resources, a ResourceQuota, or what nodes can give to pods."""
    quota: Word = ""
    """The name of that ResourceQuota."""
    node_selector: Mapping[Word, Word] = field(default_factory=dict)
    """Labels of the nodes that count; none: all of them."""


_FORM = SettingsSchema(Options(), strict=True)


def load(pool: Pool) -> Options:
    """Return the options of a pool; raise ``ConfigError`` for the first that is wrong."""
    field_name = f"pool {pool.name}: options"
    options: Options = _FORM.load(dict(pool.options), field_name)
    if pool.build.runtime.name != KUBERNETES:
        error = f"must be {KUBERNETES}, as the backend is, not {pool.build.runtime.name}"
        raise ConfigError(f"pool {pool.name}: build.runtime.name", error)
    if options.capacity == QUOTA and not options.quota:
        raise ConfigError(f"{field_name}: quota", "must name the ResourceQuota that is offered")
    if options.capacity == FIXED and not pool.resources:
        raise ConfigError(f"pool {pool.name}: resources", "must say what the pool offers")
    return options
