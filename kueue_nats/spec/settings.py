"""Settings of the operator: the dataclasses are the only list of the keys.

As for the plugin: a YAML file (INTERLINK_KUEUE_CONFIG names it), and for each key a variable of the
environment that wins over it: ``nats.ca_file`` is INTERLINK_NATS_CA_FILE. docs/kueue-settings.md
lists them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Annotated

from templates.program.settings import CREDENTIAL_FILES, Logging, Nats, find_nats_errors
from templates.settings.environment import SettingsLoader
from templates.settings.files import reading_file
from templates.settings.reference import Key
from templates.settings.types import Count, Kind, PathOrEmpty, Word

CONFIG_VARIABLE = "INTERLINK_KUEUE_CONFIG"
PREFIX = "INTERLINK_"
PROGRAM = "kueue-nats"
SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"


@dataclass(frozen=True)
class OwnNats(Nats):
    """Connection of the operator's own, which it can do without."""

    servers: tuple[Annotated[str, Kind.SERVER], ...] = ()
    """URLs to try in any order, for flavors without a natsConnector; without credentials."""


@dataclass(frozen=True)
class Settings:
    """Settings of the whole file, kueue-nats.yaml."""

    nats: OwnNats = field(default_factory=OwnNats)
    """The operator's own connection, for flavors without a natsConnector; all trust its CAs."""
    kubeconfig: PathOrEmpty = ""
    """How to reach the cluster; empty: KUBECONFIG, else the ServiceAccount of its own pod."""
    namespace: Word = ""
    """Where the lease and the Secrets of connectors are; empty: that of its pod, else default."""
    poll_s: Count = 2
    """Between two looks at the cluster; half of it when a pool has said something new."""
    lease: Word = "kueue-nats"
    """Name of the Lease that lets one of several operators lead."""
    lease_s: Count = 15
    """A leader that has not renewed it for so long is replaced."""
    listen: Word = "127.0.0.1:8081"
    """address:port for /healthz and /metrics."""
    logging: Logging = field(default_factory=Logging)
    """What is logged."""


def _find_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    nats = settings.nats
    if nats.servers or nats.user or any(getattr(nats, key) for key in CREDENTIAL_FILES):
        yield from find_nats_errors(nats)
    host, _, port = settings.listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        yield "listen", "must be address:port"


_LOADER = SettingsLoader(Settings(), PREFIX, _find_errors)


def from_environment(config: str = "") -> Settings:
    """Return the settings of this process; a file on the command line wins over the variable."""
    path, text = config or os.environ.get(CONFIG_VARIABLE, ""), ""
    if path:
        with reading_file(path):
            text = FilePath(path).read_text(encoding="utf-8")
    return load(text, path, os.environ)


def load(text: str, path: str, environment: Mapping[str, str]) -> Settings:
    """Return the settings in a file and in variables of the environment."""
    settings: Settings = _LOADER.load(text, path, environment)
    return settings


def keys() -> tuple[Key, ...]:
    """Return every key, in the order of the dataclasses."""
    return _LOADER.keys


def home_kubeconfig() -> str:
    """Return the value of KUBECONFIG; empty if there is none."""
    return os.environ.get("KUBECONFIG", "")


def own_namespace(settings: Settings) -> str:
    """Return the namespace of the operator."""
    if settings.namespace:
        return settings.namespace
    try:
        return FilePath(SERVICE_ACCOUNT).read_text(encoding="utf-8").strip()
    except OSError:
        return "default"
