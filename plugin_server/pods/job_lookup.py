"""Lookup of jobs that are not in the table: by queries to their site, with limits.

A site that has no such job for long enough has lost it; no reply means nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Callable

from plugin_server.nats.bridge import Bridge, BridgeError
from plugin_server.nats.gateway import Gateway
from plugin_server.state.job_table import JobTable
from templates.common.errors import WireError
from templates.nats.requests import LinkError, NoResponders, NotConnected
from templates.protocol.messages import Query, Refusal

ANSWER_S = 1.0
PAUSE_S = 10.0  # after a query without reply, per pool
AGAIN_S = 5.0  # before a missing job is looked up again
MAX_QUERIES = 4  # at once, per pool
MAX_JOBS = 500  # in one query
FORGET_S = 3600.0


class _MissingJob:
    """Times of the first and the last reply that a job is missing."""

    __slots__ = ("last", "since")

    def __init__(self, now: float) -> None:
        self.since = now
        self.last = now


class _PoolLimit:
    """Limits of the queries to one pool."""

    def __init__(self) -> None:
        self.not_before = float("-inf")
        self.slots = threading.Semaphore(MAX_QUERIES)


class JobLookup:
    """Lookup of single jobs at their site; called by any number of threads."""

    def __init__(
        self,
        bridge: Bridge,
        gateway: Gateway,
        table: JobTable,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bridge = bridge
        self._gateway = gateway
        self._table = table
        self._clock = clock
        self._pools: dict[str, _PoolLimit] = {}
        self._missing: dict[str, _MissingJob] = {}
        self._lock = threading.Lock()

    def look_up(self, pool: str, jobs: Iterable[str]) -> bool:
        """Query jobs that are due, and store the statuses; return whether the site has replied.

        Also true if no job was due.
        """
        now = self._clock()
        with self._lock:
            state = self._pools.setdefault(pool, _PoolLimit())
            due = [job for job in jobs if self._is_due(job, now)][:MAX_JOBS]
        if not due:
            return True
        if now < state.not_before or not state.slots.acquire(blocking=False):
            return False
        try:
            missing = self._bridge.call(self._query(pool, tuple(due)), ANSWER_S + 1)
        except (NoResponders, NotConnected):
            self._forget(due)  # without a pause: this took no time
            return False
        except (LinkError, WireError, BridgeError):
            state.not_before = self._clock() + PAUSE_S
            self._forget(due)
            return False
        finally:
            state.slots.release()
        self._note(due, missing)
        return True

    def missing_s(self, job: str) -> float:
        """Return the seconds for which every reply of the site has missed the job."""
        missing = self._missing.get(job)
        return missing.last - missing.since if missing is not None else 0.0

    def _is_due(self, job: str, now: float) -> bool:
        missing = self._missing.get(job)
        return missing is None or now - missing.last >= AGAIN_S

    async def _query(self, pool: str, jobs: tuple[str, ...]) -> set[str]:
        """Return the jobs that the site does not have."""
        missing, left = set(jobs), set(jobs)
        cursor = ""
        while True:
            page = await self._gateway.query(pool, Query(jobs, cursor), ANSWER_S)
            if isinstance(page, Refusal):
                raise _QueryRefused(page.message)
            told = left.intersection([*[status.job for status in page.states], *page.gone])
            left -= told
            for status in page.states:
                if status.job in told:
                    self._table.put(pool, status)
                    missing.discard(status.job)
            if not page.cursor or page.cursor == cursor:
                return missing
            if not told:
                raise WireError(f"pool {pool}", "answered a query with other jobs than asked for")
            cursor = page.cursor

    def _note(self, queried: list[str], missing: set[str]) -> None:
        now = self._clock()
        with self._lock:
            for job in queried:
                if job not in missing:
                    self._missing.pop(job, None)
                elif job in self._missing:
                    self._missing[job].last = now
                else:
                    self._missing[job] = _MissingJob(now)
            if len(self._missing) > 10_000:
                self._missing = {
                    job: m for job, m in self._missing.items() if now - m.last < FORGET_S
                }

    def _forget(self, jobs: list[str]) -> None:
        """Restart the time for which jobs are missing: there was no reply."""
        with self._lock:
            for job in jobs:
                self._missing.pop(job, None)


class _QueryRefused(LinkError):
    """Query that the site has rejected."""
