"""Pools: build configuration, resources, and when each was last heard from.

Written by the loop's thread, read by all threads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Callable, NamedTuple, Optional

from templates.common import quantity
from templates.protocol.publications import Config, Resources

CPU, MEMORY, PODS = "cpu", "memory", "pods"
LARGEST = 2**63 - 1  # Kubernetes counts in 64 bits, CPUs by thousandths


class PoolInfo(NamedTuple):
    """Last publications of a pool."""

    config: Optional[Config] = None
    resources: Optional[Resources] = None
    heard: float = 0.0  # monotonic; 0: not since the start, only restored


class Pools:
    """Table of all pools that were ever heard from."""

    def __init__(self, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._timeout_s = timeout_s
        self._clock = clock
        self._pools: dict[str, PoolInfo] = {}
        self._lock = threading.Lock()
        self._new_config = threading.Condition(self._lock)

    # --- writing ------------------------------------------------------------------------------

    def mark_alive(self, pool: str) -> None:
        """Note that a pool was heard from."""
        with self._lock:
            info = self._pools.get(pool, PoolInfo())
            self._pools[pool] = info._replace(heard=self._clock())

    def update_config(self, config: Config) -> bool:
        """Store a build configuration; return whether it has changed."""
        with self._lock:
            info = self._pools.get(config.pool, PoolInfo())
            self._pools[config.pool] = info._replace(config=config, heard=self._clock())
            self._new_config.notify_all()
            return info.config is None or info.config.digest != config.digest

    def update_resources(self, resources: Resources) -> Optional[Resources]:
        """Store the resources that a pool offers; return those that it offered before."""
        with self._lock:
            info = self._pools.get(resources.pool, PoolInfo())
            self._pools[resources.pool] = info._replace(resources=resources, heard=self._clock())
            return info.resources

    def restore_config(self, config: Config) -> None:
        """Store a configuration from before a restart, unless a newer one was published."""
        with self._lock:
            info = self._pools.get(config.pool, PoolInfo())
            if info.config is None:
                self._pools[config.pool] = info._replace(config=config)
                self._new_config.notify_all()

    # --- reading ------------------------------------------------------------------------------

    def config(self, pool: str) -> Optional[Config]:
        """Return the build configuration of a pool; None if unknown."""
        info = self._pools.get(pool)
        return info.config if info else None

    def wait_for_config(self, pool: str, timeout_s: float) -> Optional[Config]:
        """Return the configuration when it is published; None if the timeout passes."""
        with self._new_config:
            self._new_config.wait_for(lambda: self.config(pool) is not None, timeout_s)
            return self.config(pool)

    def snapshot(self) -> Mapping[str, PoolInfo]:
        """Return a copy of the table."""
        with self._lock:
            return dict(self._pools)

    def is_alive(self, info: PoolInfo) -> bool:
        """Return whether a pool was heard from lately."""
        return info.heard > 0 and self._clock() - info.heard <= self._timeout_s

    def alive(self) -> list[str]:
        """Return the names of the pools that were heard from lately."""
        return sorted(name for name, info in self.snapshot().items() if self.is_alive(info))

    def describe_alive(self) -> str:
        """Return them for a message, with their errors."""
        return ", ".join(map(self._describe, self.alive()))

    def _describe(self, name: str) -> str:
        error = self.scheduler_error(name)
        return f"{name} (its batch system cannot be asked: {error})" if error else name

    def scheduler_error(self, pool: str) -> str:
        """Return why a pool's batch system cannot be queried; empty if no error is known."""
        with self._lock:
            resources = self._pools.get(pool, PoolInfo()).resources
        return resources.trouble if resources is not None else ""

    def seconds_since_heard(self, info: PoolInfo) -> float:
        """Return the seconds since a pool was last heard from."""
        return self._clock() - info.heard if info.heard else float("inf")

    def totals(self) -> dict[str, int]:
        """Return the sum of what alive pools offer, in milli-CPUs, bytes and pieces.

        A resource that is no longer offered is 0: interLink would keep the old number for ever.
        Empty before the first pool was heard from.
        """
        sums: dict[str, int] = {}
        for info in self.snapshot().values():
            if info.resources is not None:
                counts = self.is_alive(info) and not info.resources.draining
                for name, text in info.resources.quotas.items():
                    offered = _base_units(name, text) if counts else 0
                    sums[name] = min(sums.get(name, 0) + offered, LARGEST)
        return sums


def _base_units(name: str, text: str) -> int:
    return quantity.cpu_milli(text) if name == CPU else quantity.byte_count(text)
