"""What follows from a BuildConfig alone is made once for each, not again for every pod."""

from __future__ import annotations

from typing import Callable, TypeVar

from templates.build_config import BuildConfig

_MOST_SITES = 256  # whose facts are kept

_Made = TypeVar("_Made")


def per_site(make: Callable[[BuildConfig], _Made]) -> Callable[[BuildConfig], _Made]:
    """Cache by the identity of the BuildConfig, which never changes but cannot be hashed.

    The cache keeps it alive, so that no other one can get its identity.
    """
    known: dict[int, tuple[BuildConfig, _Made]] = {}

    def made(config: BuildConfig) -> _Made:
        found = known.get(id(config))
        if found is None:
            if len(known) >= _MOST_SITES:
                known.clear()
            found = known[id(config)] = config, make(config)
        return found[1]

    return made
