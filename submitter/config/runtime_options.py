"""Options of the runtime that a pod's ``singularity-options`` has, as a policy judges them."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterator, Sequence

from templates.common.names import matches_any

_BINDS = ("--bind", "-B")  # of Apptainer: several, separated by commas
_VOLUMES = ("--volume", "-v")  # of podman
_MOUNT = "--mount"
_MOUNTING = frozenset((*_BINDS, *_VOLUMES, _MOUNT))
_PATHS = re.compile(r"(?:^|[=:,])(/[^:,]*)")


def not_allowed(words: Sequence[str], patterns: Collection[str]) -> list[str]:
    """Return the options that no pattern means: ``--name=*`` is one with a value, however given."""
    return [text for text, is_allowed in _options(words, patterns) if not is_allowed]


def host_paths(words: Sequence[str], patterns: Collection[str]) -> Iterator[str]:
    """Yield the paths of the node that the options name; of unknown ones, what may be a path."""
    for text, is_allowed in _options(words, patterns):
        name, _, value = text.partition("=")
        if name in _BINDS:
            # Apptainer unquotes by backslashes: no path that could be judged.
            specs = [text] if "\\" in value else value.split(",")
            yield from [spec.partition(":")[0] for spec in specs]
        elif name in _VOLUMES:
            yield value.partition(":")[0]
        elif name == _MOUNT:
            yield from _mount_sources(text, value)
        elif len(name) > 2 and name[0] == "-" and not name.startswith("--"):
            yield text  # several short options in one word, or one with its value: no path
        elif not is_allowed:
            yield from _PATHS.findall(text)


def _options(words: Sequence[str], patterns: Collection[str]) -> Iterator[tuple[str, bool]]:
    """Yield each option with its value, as ``--name=value``, and whether a pattern allows it."""
    rest = [*reversed(words)]
    while rest:
        word = rest.pop()
        if rest and word.startswith("-") and "=" not in word:
            joined = f"{word}={rest[-1]}"
            is_whole = matches_any(word, patterns)
            if word in _MOUNTING or (not is_whole and matches_any(joined, patterns)):
                word = joined
                rest.pop()
        yield word, matches_any(word, patterns)


def _mount_sources(text: str, value: str) -> Iterator[str]:
    """Yield the sources of type=bind,source=...,destination=..., a line of CSV."""
    if not value.isprintable() or len(value) > csv.field_size_limit():
        yield text  # of several lines, perhaps
        return
    for field in next(csv.reader([value]), []):
        name, _, source = field.partition("=")
        if name.strip().lower() in ("source", "src"):
            yield source
