"""Publications of a pool: changed job states, heartbeats, resources, and how to build scripts.

They are numbered, also those that could not be sent: a subscriber that misses one asks for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Mapping
from typing import Optional

from submitter.common.errors import SubmitterError
from submitter.common.periodic_tasks import PeriodicTasks
from submitter.jobs.context import PoolContext
from templates.common.errors import one_line
from templates.nats import codec, subjects
from templates.nats.connection import Link
from templates.nats.requests import LinkError
from templates.program.recurring_error import RecurringError
from templates.protocol import publications
from templates.protocol.messages import Query
from templates.protocol.publications import Resources, StatusUpdate

logger = logging.getLogger(__name__)

BATCH_S = 0.25
LEAST_STATES_BYTES = (
    64 * 1024
)  # even beside the names of many removed jobs: then it is sent in parts
HEADER_BYTES = 1024  # reserved for what surrounds the states in a publication


class PoolPublisher:
    """The publications of one pool, from ``start`` to ``stop``."""

    def __init__(self, context: PoolContext, link: Link, root: str) -> None:
        self._context, self._link = context, link
        self._name = context.pool.name
        self._subjects = {
            kind: subjects.subject(root, kind, self._name)
            for kind in (subjects.STATUS, subjects.CONFIG, subjects.RESOURCES)
        }
        self._instance = uuid.uuid4().hex
        self._number = 0
        self._resources: Optional[Resources] = None
        self._capacity: Mapping[str, str] = {}  # as last read from the batch system
        self._loops = PeriodicTasks(self._name)
        prefix = f"pool={self._name}: what it offers"
        self._capacity_error = RecurringError(
            logger, f"{prefix} cannot be found out", f"{prefix} can be found out again"
        )
        self.draining = False

    async def start(self) -> None:
        """Begin to publish."""
        timing = self._context.pool.timing
        self._loops.start("publish changes", self._publish_changes, lambda: BATCH_S)
        self._loops.start("publish heartbeat", self._publish_heartbeat, lambda: timing.heartbeat_s)
        self._loops.start("publish resources", self._publish_resources, lambda: timing.resources_s)

    async def stop(self) -> None:
        """Publish the last changes."""
        await self._loops.stop()
        with contextlib.suppress(LinkError):
            await self._publish_changes()

    def drain(self) -> None:
        """Publish from now on that the pool takes no more jobs."""
        self.draining = True

    # --- on NATS ------------------------------------------------------------------------------

    async def publish_all(self) -> None:
        """Publish how scripts are built, the resources and a heartbeat, for a new subscriber."""
        message = publications.write_config(self._name, self._context.pool.build)
        await self._publish(subjects.CONFIG, codec.encode(message))
        self._resources = None
        await self._publish_resources()
        await self._publish_heartbeat()

    async def _publish(self, kind: str, raw: bytes) -> None:
        async with self._link.chunked_if_large(subjects.ANSWER_PARTS, self._name, raw) as payload:
            await self._link.publish_raw(self._subjects[kind], payload)

    async def _publish_changes(self) -> None:
        """Publish the changed states, in as many publications as they need."""
        dumped, gone = self._context.table.take_changes()
        if not dumped and not gone:
            return
        for part in _parts(dumped, self._room_for_states(gone)):
            self._number += 1
            payload = publications.dump_status_update(self._header(tuple(gone)), part)
            gone = []
            await self._publish(subjects.STATUS, payload)

    def _room_for_states(self, gone: list[str]) -> int:
        return max(self._room - _size(gone), LEAST_STATES_BYTES)

    @property
    def _room(self) -> int:
        """Bytes for the states in a publication or a page: more than some would be refused."""
        return min(self._link.part_size, subjects.MIDDLE) - HEADER_BYTES

    async def _publish_heartbeat(self) -> None:
        await self._publish(subjects.STATUS, publications.dump_status_update(self._header(()), []))

    async def _publish_resources(self) -> None:
        resources = await asyncio.to_thread(self._read_resources)
        if self._resources is not None and resources.quotas != self._resources.quotas:
            logger.info("pool=%s: offers %s", self._name, dict(resources.quotas))
        self._resources = resources
        message = publications.write_resources(resources)
        await self._link.publish(self._subjects[subjects.RESOURCES], message, compress=False)

    def _read_resources(self) -> Resources:
        """Return the resources: the last known ones, with the error, if there are no new ones."""
        pool, error = self._context.pool, ""
        try:
            self._capacity = self._context.backend.capacity()
        except SubmitterError as failure:
            error = one_line(str(failure))
        self._capacity_error.set(error)
        return Resources(
            pool=self._name,
            quotas={**self._capacity, **pool.resources},
            labels=tuple(f"{key}={value}" for key, value in pool.labels.items()),
            taints=tuple(pool.taints),
            draining=self.draining,
            interval_s=pool.timing.resources_s,
            trouble=error,
        )

    # --- answers --------------------------------------------------------------------------------

    def answer_query(self, query: Query) -> bytes:
        """Return as many states as fit into one message: of the named jobs, or of all."""
        table, room = self._context.table, self._room
        if query.jobs is None:
            dumped, cursor = table.page(query.cursor, room)
            return publications.dump_status_update(self._header((), cursor), dumped)
        gone: list[str] = []
        dumped = []
        names = sorted(set(query.jobs))
        for name in names:
            if name <= query.cursor:
                continue
            entry = table.get(name)
            if entry is None:
                gone.append(name)
            else:
                dumped.append(entry.dump())
            room -= len(dumped[-1]) if entry is not None else len(name) + 3
            if room < 0 and name != names[-1]:
                return publications.dump_status_update(self._header(tuple(gone), name), dumped)
        return publications.dump_status_update(self._header(tuple(gone)), dumped)

    def _header(self, gone: tuple[str, ...], cursor: str = "") -> StatusUpdate:
        count = len(self._context.table)
        return StatusUpdate(self._name, self._instance, self._number, count, (), gone, cursor)


def _size(names: list[str]) -> int:
    return sum(len(name) + 3 for name in names)


def _parts(dumped: list[bytes], room: int) -> list[list[bytes]]:
    """Split states into lists that fit into one publication each; return at least one list."""
    parts: list[list[bytes]] = [[]]
    left = room
    for status in dumped:
        left -= len(status) + 1
        if left < 0 and parts[-1]:
            parts.append([])
            left = room - len(status)
        parts[-1].append(status)
    return parts
