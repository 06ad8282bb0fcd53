"""Settings of the plugin: the dataclasses are the only list of the keys.

They are read from a YAML file (INTERLINK_PLUGIN_CONFIG), and each key has an environment variable
that overrides it: ``nats.ca_file`` is INTERLINK_NATS_CA_FILE. The text under a field documents it;
docs/plugin-settings.md is generated from it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath

from templates.common.errors import ConfigError, PodRejected
from templates.common.names import check_token
from templates.program.settings import Logging, Nats, find_nats_errors
from templates.settings.environment import WITHOUT_A_FILE, SettingsLoader
from templates.settings.files import reading_file
from templates.settings.reference import Key
from templates.settings.types import REQUIRED, Count, PathOrEmpty, Word

CONFIG_VARIABLE = "INTERLINK_PLUGIN_CONFIG"
PREFIX = "INTERLINK_"
METRICS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"  # its name is prometheus_client's
IN_CLUSTER = "in-cluster"
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"  # of every pod that has one
OTHER_THREADS = 36  # for requests that never wait long: statuses, pings, deletes


@dataclass(frozen=True)
class Redis:
    """A store that makes a restarted plugin quicker; nothing is wrong without it."""

    url: Word = ""
    """redis://, rediss:// or unix:// URL without a password; empty: no Redis."""
    password_file: PathOrEmpty = ""
    """File with the password."""
    prefix: Word = "interlink"
    """What all of our keys there begin with."""


@dataclass(frozen=True)
class OrphanSettings:
    """Jobs whose pods are gone, and ends that Kubernetes does not know; only with an account."""

    api_server: Word = ""
    """https:// URL of the API server, or in-cluster for the account of the plugin's own pod; empty:
    orphans are not looked for."""
    token_file: PathOrEmpty = ""
    """File with the account's token; not needed in-cluster."""
    ca_file: PathOrEmpty = ""
    """Certificates of the API server's CAs; empty: those of the system, or of the own pod."""
    after_s: Count = 600
    """How long Kubernetes must not have known a job's pod before the job is cancelled."""
    end_after_s: Count = 60
    """How long Kubernetes may not know that a pod has ended before the plugin writes it there."""
    at_once: Count = 20
    """The brake: so many orphans of a pool, or one in twenty of its jobs if that is more, are
    cancelled within an hour; when there are more, none is."""


@dataclass(frozen=True)
class Server:
    """The HTTP server."""

    workers: Count = 1
    """Processes; each holds all states in memory and has a connection to NATS of its own."""
    waiting_creates: Count = 1000
    """How many creates may wait for their sites at once."""
    log_readers: Count = 64
    """How many logs may be read or followed at once; a namespace may have as many of them as it
    leaves free, a pod a quarter of that."""
    largest_create_mib: Count = 64
    """How many MiB the body of a create may have, in which ConfigMaps and Secrets arrive whole;
    that of any other request may have 16."""
    graceful_timeout_s: Count = 75
    """How long a stopping worker lets its creates come to their end."""

    @property
    def threads(self) -> int:
        """Return the threads of a worker: one per request that may wait, and some for others."""
        return self.waiting_creates + self.log_readers + OTHER_THREADS


@dataclass(frozen=True)
class Settings:
    """The whole file, plugin.yaml."""

    nats: Nats = field(default_factory=Nats, metadata=REQUIRED)
    """How to reach NATS."""
    listen: Word = "http://127.0.0.1:4000"
    """Where interLink finds the plugin: http://address:port, or unix:///path of a socket."""
    health_listen: Word = ""
    """address:port that also answers /healthz, /readyz and /metrics, and no more; empty: none."""
    default_pool: Word = ""
    """Where pods go that name no pool; empty: they are refused."""
    create_timeout_s: Count = 60
    """How long a create is tried before the pod fails; interLink itself gives up after 120 s."""
    pool_timeout_s: Count = 60
    """A pool that has not been heard of for so long offers nothing to the node."""
    lost_after_s: Count = 120
    """How long a site must say that it has no such job before its pod fails."""
    state_directory: PathOrEmpty = ""
    """Where deletions are kept until their sites have confirmed them, and which pool each pod was
    sent to; empty: in memory only."""
    redis: Redis = field(default_factory=Redis)
    """A store that makes a restarted plugin quicker; nothing is wrong without it."""
    orphans: OrphanSettings = field(default_factory=OrphanSettings)
    """Jobs whose pods Kubernetes no longer knows, and pods of which it does not know that they have
    ended; looked for only where there is an account."""
    server: Server = field(default_factory=Server)
    """The HTTP server."""
    logging: Logging = field(default_factory=Logging)
    """What is logged."""


def _find_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield field and message of each error that involves more than a type."""
    yield from find_nats_errors(settings.nats)
    if not settings.listen.startswith(("http://", "unix:///")):
        yield "listen", "must be http://address:port or unix:///path"
    if settings.health_listen and not port_of(settings.health_listen):
        yield "health_listen", "must be address:port"
    try:
        check_token("default_pool", settings.default_pool or "none")
    except PodRejected as error:
        yield "default_pool", error.reason
    if settings.create_timeout_s > 110:
        yield "create_timeout_s", "must be at most 110: interLink gives up after 120 s"
    if settings.redis.url and not settings.redis.url.startswith(
        ("redis://", "rediss://", "unix://")
    ):
        yield "redis.url", "must begin with redis://, rediss:// or unix://"
    api_server = settings.orphans.api_server
    if api_server.startswith("https://"):
        if not settings.orphans.token_file:
            yield "orphans.token_file", "is needed with the URL of an API server"
    elif api_server not in ("", IN_CLUSTER):
        yield "orphans.api_server", f"must begin with https://, or be {IN_CLUSTER}"


_LOADER = SettingsLoader(Settings(), PREFIX, _find_errors)


def from_environment() -> Settings:
    """Load the settings of this process."""
    return load(os.environ)


def load(environment: Mapping[str, str]) -> Settings:
    """Load settings from a file and environment variables."""
    path, text = environment.get(CONFIG_VARIABLE, ""), ""
    if path:
        with reading_file(path):
            text = FilePath(path).read_text(encoding="utf-8")
    settings: Settings = _LOADER.load(text, path, environment)
    if settings.orphans.api_server == IN_CLUSTER:
        return replace(settings, orphans=_in_cluster(settings.orphans, path, environment))
    return settings


def _in_cluster(
    orphans: OrphanSettings, path: str, environment: Mapping[str, str]
) -> OrphanSettings:
    """Return the settings with what Kubernetes tells every pod about its API server."""
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    if not host:
        field_name = f"{path or WITHOUT_A_FILE}: orphans.api_server"
        raise ConfigError(field_name, "this is no pod of a cluster: give the URL of the API server")
    host = f"[{host}]" if ":" in host else host
    return replace(
        orphans,
        api_server=f"https://{host}:{environment.get('KUBERNETES_SERVICE_PORT', '443')}",
        token_file=orphans.token_file or f"{ACCOUNT}/token",
        ca_file=orphans.ca_file or f"{ACCOUNT}/ca.crt",
    )


def keys() -> tuple[Key, ...]:
    """Return every key, in the order of the dataclasses."""
    return _LOADER.keys


def variable(key: str) -> str:
    """Return the environment variable of a dotted key."""
    return _LOADER.variable(key)


def share_metrics(state_directory: str) -> None:
    """Make workers share a metrics directory; call it before importing prometheus_client."""
    if os.environ.get(METRICS_VARIABLE):
        return
    if not state_directory:
        os.environ[METRICS_VARIABLE] = tempfile.mkdtemp(prefix="interlink-metrics-")
        return
    directory = FilePath(state_directory, "metrics")
    shutil.rmtree(directory, ignore_errors=True)  # of a killed plugin
    directory.mkdir(mode=0o700, parents=True)
    os.environ[METRICS_VARIABLE] = str(directory)


def metrics_directory() -> str:
    """Return the directory that workers share; empty if there is one worker."""
    return os.environ.get(METRICS_VARIABLE, "")


def port_of(listen: str) -> str:
    """Return the port of address:port; empty if it is not valid."""
    host, _, port = listen.rpartition(":")
    is_valid = host and port.isascii() and port.isdecimal() and 0 < int(port) < 65536
    return port if is_valid else ""


def bind_address(listen: str) -> str:
    """Return the address in gunicorn's form."""
    if listen.startswith("unix://"):
        return "unix:" + listen[len("unix://") :]
    return listen[len("http://") :]
