"""Pods that the table does not know: looked up at their site, once in a while and never for long.

A site that answers "no such job" for long enough has lost the job; one that does not answer has
said nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Callable

from plugin_server.nats.bridge import Bridge, BridgeError
from plugin_server.nats.gateway import Gateway
from plugin_server.state.job_table import StatesTable
from templates.common.errors import WireError
from templates.nats.requests import LinkError, NoResponders, NotConnected
from templates.protocol.messages import Query, Refusal

ANSWER_S = 1.0
PAUSE_S = 10.0  # before a pool that did not answer is asked again
AGAIN_S = 5.0  # before a pod that the site does not have is asked for again
AT_ONCE = 4  # threads that wait for one pool
MOST = 500  # jobs in one question
FORGET_S = 3600.0


class _Missing:
    """What a site has said about a job that it does not have."""

    __slots__ = ("last", "since")

    def __init__(self, now: float) -> None:
        self.since = now
        self.last = now


class _PoolState:
    """How a pool has answered lately."""

    def __init__(self) -> None:
        self.not_before = float("-inf")
        self.room = threading.Semaphore(AT_ONCE)


class Lookups:
    """Questions about single jobs; called by any number of threads."""

    def __init__(
        self,
        bridge: Bridge,
        gateway: Gateway,
        table: StatesTable,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bridge = bridge
        self._gateway = gateway
        self._table = table
        self._clock = clock
        self._pools: dict[str, _PoolState] = {}
        self._missing: dict[str, _Missing] = {}
        self._lock = threading.Lock()

    def look_up(self, pool: str, jobs: Iterable[str]) -> bool:
        """Ask the site, if that may be worth it now; what it has is in the table afterwards.

        False when the site has not said anything about them.
        """
        now = self._clock()
        with self._lock:
            state = self._pools.setdefault(pool, _PoolState())
            wanted = [job for job in jobs if self._is_due(job, now)][:MOST]
        if not wanted:
            return True
        if now < state.not_before or not state.room.acquire(blocking=False):
            return False
        try:
            missing = self._bridge.call(self._ask(pool, tuple(wanted)), ANSWER_S + 1)
        except (NoResponders, NotConnected):
            self._forget(wanted)  # which took no time
            return False
        except (LinkError, WireError, BridgeError):
            state.not_before = self._clock() + PAUSE_S
            self._forget(wanted)
            return False
        finally:
            state.room.release()
        self._note(wanted, missing)
        return True

    def missing_s(self, job: str) -> float:
        """How long the site has said, whenever it was asked, that it has no such job."""
        missing = self._missing.get(job)
        return missing.last - missing.since if missing is not None else 0.0

    def _is_due(self, job: str, now: float) -> bool:
        missing = self._missing.get(job)
        return missing is None or now - missing.last >= AGAIN_S

    async def _ask(self, pool: str, jobs: tuple[str, ...]) -> set[str]:
        """Those that the site does not have."""
        missing = set(jobs)
        cursor = ""
        while True:
            page = await self._gateway.query(pool, Query(jobs, cursor), ANSWER_S)
            if isinstance(page, Refusal):
                raise _NoAnswer(page.message)
            for status in page.states:
                self._table.put(pool, status)
                missing.discard(status.job)
            if not page.cursor or page.cursor == cursor:
                return missing
            cursor = page.cursor

    def _note(self, asked: list[str], missing: set[str]) -> None:
        now = self._clock()
        with self._lock:
            for job in asked:
                if job not in missing:
                    self._missing.pop(job, None)
                elif job in self._missing:
                    self._missing[job].last = now
                else:
                    self._missing[job] = _Missing(now)
            if len(self._missing) > 10_000:
                self._missing = {
                    job: m for job, m in self._missing.items() if now - m.last < FORGET_S
                }

    def _forget(self, jobs: list[str]) -> None:
        """No answer is no answer: the time of being missed begins anew."""
        with self._lock:
            for job in jobs:
                self._missing.pop(job, None)


class _NoAnswer(LinkError):
    """The site could not say."""
