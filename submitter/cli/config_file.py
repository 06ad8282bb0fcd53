"""submitter.yaml: its text as ``Settings``, or a one-line error."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from submitter.backends.registry import BACKENDS
from submitter.config.settings import Policy, Pool, Settings
from templates.common.errors import ConfigError
from templates.program.settings import CREDENTIAL_FILES, Nats, find_nats_errors
from templates.settings import reference as settings_keys
from templates.settings.files import parse_yaml, reading_file
from templates.settings.reference import Key
from templates.settings.rules import kind_of
from templates.settings.schema import SettingsSchema
from templates.site import file as build_config_file
from templates.site.build_config import HOST, BuildConfig

DEFAULT_PATH = "/etc/interlink/submitter.yaml"

EXAMPLE = Settings(
    nats=Nats(
        servers=("wss://nats.example.org:443",),
        inbox_prefix="_INBOX_mysite",
        nkey_file="/etc/interlink/nats.nkey",
    ),
    pools=(
        Pool(
            name="mypool",
            directory="/shared/interlink/mypool",
            policy=Policy(namespaces=("mynamespace",)),
        ),
    ),
)
"""Values of the sample for keys without a default."""

UNNAMED = (
    "must be written where build.runtime.name is host, as nothing keeps a job there from the files "
    'of the others: name the namespaces that may run here, or ["*"] for all of them'
)

_FORM = SettingsSchema(Settings(), strict=True)


def read(path: Path) -> Settings:
    """Read the settings in a file."""
    with reading_file(str(path)):
        text = path.read_text(encoding="utf-8")
    return load(text, str(path), path.parent)


def load(text: str, name: str, folder: Path = Path()) -> Settings:
    """Parse settings; messages call the text ``name``, paths are relative to ``folder``."""
    raw = parse_yaml(text, name)
    if not isinstance(raw, dict):
        raise ConfigError(name, f"must be a mapping of sections, not {kind_of(raw)}")
    written = {key: value for key, value in raw.items() if value is not None}
    if isinstance(written.get("pools"), list):
        pools = enumerate(written["pools"])
        written["pools"] = [_with_build(pool, f"{name}: pools[{i}]", folder) for i, pool in pools]
    settings: Settings = _FORM.load(written, name)
    for field, message in _find_errors(settings):
        raise ConfigError(f"{name}: {field}", message)
    return replace(settings, pools=tuple(_with_defaults(pool) for pool in settings.pools))


def keys() -> tuple[Key, ...]:
    """Return every key that the file may have, in the order of the dataclasses."""
    return tuple(settings_keys.keys(Settings()))


def sample() -> str:
    """Return a file with every key, explained in comments."""
    title = "The site's submitter. Every key is here; where it has a default, that is its value."
    return settings_keys.sample(EXAMPLE, title)


def _with_defaults(pool: Pool) -> Pool:
    """Return the pool with the defaults that follow from other keys."""
    host_paths = tuple(path.path for path in pool.build.volumes.host_paths)
    if pool.policy.host_paths is not None or not host_paths:
        return pool
    return replace(pool, policy=replace(pool.policy, host_paths=host_paths))


def _with_build(pool: Any, field: str, folder: Path) -> Any:
    """Return the pool with its BuildConfig, read from a file if the pool names one."""
    if not isinstance(pool, dict) or not isinstance(pool.get("build"), str):
        return pool
    path = folder / pool["build"]
    with reading_file(str(path), f"{field}.build"):
        text = path.read_text(encoding="utf-8")
    build: BuildConfig = build_config_file.load(text, str(path))
    return {**pool, "build": build}


# --- mistakes that concern more than one value ----------------------------------------------------


def _find_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    yield from find_nats_errors(settings.nats)
    yield from _find_useless_ca_file(settings.nats)
    if not settings.pools:
        yield "pools", "must hold at least one pool"
    seen: dict[tuple[str, str], int] = {}
    for number, pool in enumerate(settings.pools):
        if pool.backend not in BACKENDS:
            similar = difflib.get_close_matches(pool.backend, BACKENDS, n=1)
            hint = (
                f"did you mean {similar[0]}?" if similar else f"known here: {', '.join(BACKENDS)}"
            )
            yield f"pools[{number}].backend", f"unknown batch system ({hint})"
        if pool.build.runtime.name == HOST and pool.policy.namespaces is None:
            yield f"pools[{number}].policy.namespaces", UNNAMED
        for key in ("name", "directory"):
            first = seen.setdefault((key, getattr(pool, key)), number)
            if first != number:
                yield f"pools[{number}].{key}", f"is that of pools[{first}], too"


def _find_useless_ca_file(nats: Nats) -> Iterator[tuple[str, str]]:
    secure_schemes = ("wss:", "tls:")
    if nats.ca_file and not any(server.startswith(secure_schemes) for server in nats.servers):
        yield "nats.ca_file", "is of no use: no server is reached by wss:// or tls://"


def secret_files(nats: Nats) -> tuple[tuple[str, str], ...]:
    """Return key and path of every file that contains a secret."""
    return tuple((name, getattr(nats, name)) for name in CREDENTIAL_FILES if getattr(nats, name))
