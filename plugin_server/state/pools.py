"""What is known of each pool: how its scripts are built, what it offers, when it was last heard.

Written by the loop's thread, read by all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Callable, NamedTuple, Optional

from templates.common import quantity
from templates.protocol.publications import Config, Resources

CPU, MEMORY, PODS = "cpu", "memory", "pods"


class Known(NamedTuple):
    """One pool."""

    config: Optional[Config] = None
    resources: Optional[Resources] = None
    heard: float = 0.0  # monotonic; 0: not in this life, only remembered


class Pools:
    """All pools that were ever heard of."""

    def __init__(self, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._timeout_s = timeout_s
        self._clock = clock
        self._pools: dict[str, Known] = {}
        self._lock = threading.Lock()
        self._new_config = threading.Condition(self._lock)

    # --- what is heard ------------------------------------------------------------------------

    def hear(self, pool: str) -> None:
        """A sign of life."""
        with self._lock:
            known = self._pools.get(pool, Known())
            self._pools[pool] = known._replace(heard=self._clock())

    def hear_config(self, config: Config) -> bool:
        """How scripts are built; true when that is new."""
        with self._lock:
            known = self._pools.get(config.pool, Known())
            self._pools[config.pool] = known._replace(config=config, heard=self._clock())
            self._new_config.notify_all()
            return known.config is None or known.config.digest != config.digest

    def hear_resources(self, resources: Resources) -> None:
        """What a pool offers."""
        with self._lock:
            known = self._pools.get(resources.pool, Known())
            self._pools[resources.pool] = known._replace(resources=resources, heard=self._clock())

    def remember_config(self, config: Config) -> None:
        """What was known before a restart; what is heard wins."""
        with self._lock:
            known = self._pools.get(config.pool, Known())
            if known.config is None:
                self._pools[config.pool] = known._replace(config=config)
                self._new_config.notify_all()

    # --- what is asked ------------------------------------------------------------------------

    def config(self, pool: str) -> Optional[Config]:
        """How scripts are built for a pool."""
        known = self._pools.get(pool)
        return known.config if known else None

    def wait_for_config(self, pool: str, timeout_s: float) -> Optional[Config]:
        """Return it as soon as it is published; None if it is not within the timeout."""
        with self._new_config:
            self._new_config.wait_for(lambda: self.config(pool) is not None, timeout_s)
            return self.config(pool)

    def known(self) -> Mapping[str, Known]:
        """All of them, as they are now."""
        with self._lock:
            return dict(self._pools)

    def is_alive(self, known: Known) -> bool:
        """Whether a pool was heard of lately."""
        return known.heard > 0 and self._clock() - known.heard <= self._timeout_s

    def alive(self) -> list[str]:
        """The names of the pools that were heard of lately."""
        return sorted(name for name, known in self.known().items() if self.is_alive(known))

    def choices(self) -> str:
        """The same for people, with what is wrong with them."""
        return ", ".join(map(self._in_words, self.alive()))

    def _in_words(self, name: str) -> str:
        trouble = self.trouble(name)
        return f"{name} (its batch system cannot be asked: {trouble})" if trouble else name

    def trouble(self, pool: str) -> str:
        """Why a pool's batch system cannot be asked; empty if it can, as far as is known."""
        with self._lock:
            resources = self._pools.get(pool, Known()).resources
        return resources.trouble if resources is not None else ""

    def silent_s(self, known: Known) -> float:
        """How long a pool has not been heard."""
        return self._clock() - known.heard if known.heard else float("inf")

    def totals(self) -> dict[str, int]:
        """The sum of what the live pools offer; milli-cpus, bytes, pieces.

        A resource that was offered once and is not any more is 0: interLink would keep the old
        number for ever. Before the first pool was heard there is nothing to say.
        """
        sums: dict[str, int] = {}
        for known in self.known().values():
            if known.resources is not None:
                taken = self.is_alive(known) and not known.resources.draining
                for name, text in known.resources.quotas.items():
                    sums[name] = sums.get(name, 0) + (_amount(name, text) if taken else 0)
        return sums


def _amount(name: str, text: str) -> int:
    return quantity.cpu_milli(text) if name == CPU else quantity.byte_count(text)
