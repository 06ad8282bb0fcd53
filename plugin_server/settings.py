"""What an admin says about the plugin: the dataclasses are the only list of the keys.

A YAML file (INTERLINK_PLUGIN_CONFIG names it) gives them, and for each key there is a variable of
the environment that wins over the file: ``nats.ca_file`` is INTERLINK_NATS_CA_FILE. The text under
a field says what it means; docs/plugin-settings.md follows from it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath

from templates.errors import PodRejected
from templates.names import check_token
from templates.program_settings import Logging, Nats, mistakes_of_nats
from templates.settings_keys import Key
from templates.settings_overlay import Overlay
from templates.settings_text import reading_file
from templates.settings_types import REQUIRED, Count, PathOrEmpty, Word

CONFIG_VARIABLE = "INTERLINK_PLUGIN_CONFIG"
PREFIX = "INTERLINK_"
METRICS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"  # its name is prometheus_client's
RESERVED_THREADS = 36  # for what never waits: status, ping, deletes, health


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
class Server:
    """The HTTP server."""

    workers: Count = 1
    """Processes; each holds all states in memory and has a connection to NATS of its own."""
    waiting_creates: Count = 1000
    """How many creates may wait for their sites at once; each has a thread, idle meanwhile."""
    log_readers: Count = 64
    """How many logs may be read or followed at once."""
    graceful_timeout_s: Count = 75
    """How long a stopping worker lets its creates come to their end."""

    @property
    def threads(self) -> int:
        """Of one worker: all that may wait, and some that never do."""
        return self.waiting_creates + self.log_readers + RESERVED_THREADS


@dataclass(frozen=True)
class Settings:
    """The whole file, plugin.yaml."""

    nats: Nats = field(default_factory=Nats, metadata=REQUIRED)
    """How to reach NATS."""
    listen: Word = "http://127.0.0.1:4000"
    """Where interLink finds the plugin: http://address:port, or unix:///path of a socket."""
    default_pool: Word = ""
    """Where pods go that name no pool; empty: they are refused."""
    create_timeout_s: Count = 60
    """How long a create is tried before the pod fails; interLink itself gives up after 120 s."""
    pool_timeout_s: Count = 60
    """A pool that has not been heard of for so long offers nothing to the node."""
    lost_after_s: Count = 120
    """How long a site must say that it has no such job before its pod fails."""
    state_directory: PathOrEmpty = ""
    """Where deletions are kept until their sites have confirmed them; empty: in memory only."""
    redis: Redis = field(default_factory=Redis)
    """A store that makes a restarted plugin quicker; nothing is wrong without it."""
    server: Server = field(default_factory=Server)
    """The HTTP server."""
    logging: Logging = field(default_factory=Logging)
    """What is logged."""


def _mistakes(settings: Settings) -> Iterator[tuple[str, str]]:
    """What no single value can be checked for."""
    yield from mistakes_of_nats(settings.nats)
    if not settings.listen.startswith(("http://", "unix:///")):
        yield "listen", "must be http://address:port or unix:///path"
    try:
        check_token("default_pool", settings.default_pool or "none")
    except PodRejected as error:
        yield "default_pool", error.what
    if settings.create_timeout_s > 110:
        yield "create_timeout_s", "must be at most 110: interLink gives up after 120 s"
    if settings.redis.url and not settings.redis.url.startswith(
        ("redis://", "rediss://", "unix://")
    ):
        yield "redis.url", "must begin with redis://, rediss:// or unix://"


_OVERLAY = Overlay(Settings(), PREFIX, _mistakes)


def from_environment() -> Settings:
    """The settings of this process."""
    return load(os.environ)


def load(environment: Mapping[str, str]) -> Settings:
    """The settings that a file and variables of the environment say."""
    path, text = environment.get(CONFIG_VARIABLE, ""), ""
    if path:
        with reading_file(path):
            text = FilePath(path).read_text(encoding="utf-8")
    settings: Settings = _OVERLAY.load(text, path, environment)
    return settings


def keys() -> tuple[Key, ...]:
    """Every key, in the order of the dataclasses."""
    return _OVERLAY.keys


def variable(key: str) -> str:
    """The variable that stands for a dotted key."""
    return _OVERLAY.variable(key)


def share_metrics(state_directory: str) -> None:
    """Let several workers count into one directory; before prometheus_client is imported."""
    if os.environ.get(METRICS_VARIABLE):
        return
    if not state_directory:
        os.environ[METRICS_VARIABLE] = tempfile.mkdtemp(prefix="interlink-metrics-")
        return
    directory = FilePath(state_directory, "metrics")
    shutil.rmtree(directory, ignore_errors=True)  # what a killed plugin left
    directory.mkdir(mode=0o700, parents=True)
    os.environ[METRICS_VARIABLE] = str(directory)


def metrics_directory() -> str:
    """Where several workers count; empty when there is but one."""
    return os.environ.get(METRICS_VARIABLE, "")


def bind_address(listen: str) -> str:
    """The address in the form of gunicorn."""
    if listen.startswith("unix://"):
        return "unix:" + listen[len("unix://") :]
    return listen[len("http://") :]
