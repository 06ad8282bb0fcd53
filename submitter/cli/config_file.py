"""submitter.yaml: from its text to ``Settings``, or one line that says what is wrong with it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from submitter.backends.registry import BACKENDS
from submitter.config.settings import Pool, Settings
from templates.common.errors import ConfigError
from templates.program.settings import WAYS_IN, Nats, mistakes_of_nats
from templates.settings import reference as settings_keys
from templates.settings.files import parse_yaml, reading_file
from templates.settings.reference import Key
from templates.settings.rules import kind_of
from templates.settings.schema import Form
from templates.site import file as build_config_file
from templates.site.build_config import BuildConfig

DEFAULT_PATH = "/etc/interlink/submitter.yaml"

EXAMPLE = Settings(
    nats=Nats(
        servers=("wss://nats.example.org:443",),
        inbox_prefix="_INBOX_mysite",
        nkey_file="/etc/interlink/nats.nkey",
    ),
    pools=(Pool(name="mypool", directory="/shared/interlink/mypool"),),
)
"""What the sample says where there is no default."""

_FORM = Form(Settings(), strict=True)


def read(path: Path) -> Settings:
    """The settings in a file."""
    with reading_file(str(path)):
        text = path.read_text(encoding="utf-8")
    return load(text, str(path), path.parent)


def load(text: str, name: str, folder: Path = Path()) -> Settings:
    """The settings in a text; ``name`` is how messages call it, paths count from ``folder``."""
    raw = parse_yaml(text, name)
    if not isinstance(raw, dict):
        raise ConfigError(name, f"must be a mapping of sections, not {kind_of(raw)}")
    written = {key: value for key, value in raw.items() if value is not None}
    if isinstance(written.get("pools"), list):
        pools = enumerate(written["pools"])
        written["pools"] = [_with_build(pool, f"{name}: pools[{i}]", folder) for i, pool in pools]
    settings: Settings = _FORM.load(written, name)
    for where, what in _mistakes(settings):
        raise ConfigError(f"{name}: {where}", what)
    return replace(settings, pools=tuple(_completed(pool) for pool in settings.pools))


def keys() -> tuple[Key, ...]:
    """Every key that the file may have, in the order of the dataclasses."""
    return tuple(settings_keys.keys(Settings()))


def sample() -> str:
    """A file that holds every key, explained in comments."""
    title = "The site's submitter. Every key is here; where it has a default, that is its value."
    return settings_keys.sample(EXAMPLE, title)


def _completed(pool: Pool) -> Pool:
    """The pool, with the defaults that follow from other keys."""
    built = tuple(path.path for path in pool.build.volumes.host_paths)
    if pool.policy.host_paths is not None or not built:
        return pool
    return replace(pool, policy=replace(pool.policy, host_paths=built))


def _with_build(pool: Any, where: str, folder: Path) -> Any:
    """The pool, with the file of its BuildConfig read if it names one."""
    if not isinstance(pool, dict) or not isinstance(pool.get("build"), str):
        return pool
    path = folder / pool["build"]
    with reading_file(str(path), f"{where}.build"):
        text = path.read_text(encoding="utf-8")
    build: BuildConfig = build_config_file.load(text, str(path))
    return {**pool, "build": build}


# --- what no single value can be checked for ------------------------------------------------------


def _mistakes(settings: Settings) -> Iterator[tuple[str, str]]:
    yield from mistakes_of_nats(settings.nats)
    yield from _useless_authority(settings.nats)
    if not settings.pools:
        yield "pools", "must hold at least one pool"
    seen: dict[tuple[str, str], int] = {}
    for number, pool in enumerate(settings.pools):
        if pool.backend not in BACKENDS:
            close = difflib.get_close_matches(pool.backend, BACKENDS, n=1)
            known = f"did you mean {close[0]}?" if close else f"known here: {', '.join(BACKENDS)}"
            yield f"pools[{number}].backend", f"unknown batch system ({known})"
        for key in ("name", "directory"):
            first = seen.setdefault((key, getattr(pool, key)), number)
            if first != number:
                yield f"pools[{number}].{key}", f"is that of pools[{first}], too"


def _useless_authority(nats: Nats) -> Iterator[tuple[str, str]]:
    secure = ("wss:", "tls:")
    if nats.ca_file and not any(server.startswith(secure) for server in nats.servers):
        yield "nats.ca_file", "is of no use: no server is reached by wss:// or tls://"


def secret_files(nats: Nats) -> tuple[tuple[str, str], ...]:
    """Key and path of every file that nobody else may read."""
    return tuple((name, getattr(nats, name)) for name in WAYS_IN if getattr(nats, name))
