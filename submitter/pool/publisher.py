"""What a pool publishes: changes of its jobs, signs of life, what it offers, how to build scripts.

Publications are numbered, also those that could not be sent: whoever misses one asks.
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
from submitter.jobs.context import Site
from templates.common.errors import one_line
from templates.nats import codec, subjects
from templates.nats.connection import Link
from templates.nats.requests import LinkError
from templates.program.recurring_error import RecurringError
from templates.protocol import publications
from templates.protocol.messages import Query
from templates.protocol.publications import Resources, Statuses

logger = logging.getLogger(__name__)

BATCH_S = 0.25
LEAST_ROOM = 64 * 1024  # beside very many names of jobs that are gone; the whole goes in parts
ROOM = 1024  # of a publication, for what stands around the states


class Announcer:
    """Publishes for one pool, from ``start`` to ``stop``."""

    def __init__(self, site: Site, link: Link, root: str) -> None:
        self._site, self._link = site, link
        self._name = site.pool.name
        self._subjects = {
            kind: subjects.subject(root, kind, self._name)
            for kind in (subjects.STATUS, subjects.CONFIG, subjects.RESOURCES)
        }
        self._instance = uuid.uuid4().hex
        self._number = 0
        self._offer: Optional[Resources] = None
        self._found: Mapping[str, str] = {}  # what the batch system last offered
        self._loops = PeriodicTasks(self._name)
        what = f"pool={self._name}: what it offers"
        self._unknown = RecurringError(
            logger, f"{what} cannot be found out", f"{what} can be found out again"
        )
        self.draining = False

    async def start(self) -> None:
        """Begin to publish."""
        timing = self._site.pool.timing
        self._loops.start("publish changes", self._changes, lambda: BATCH_S)
        self._loops.start("publish heartbeat", self._heartbeat, lambda: timing.heartbeat_s)
        self._loops.start("publish resources", self._resources, lambda: timing.resources_s)

    async def stop(self) -> None:
        """Publish the last changes."""
        await self._loops.stop()
        with contextlib.suppress(LinkError):
            await self._changes()

    def drain(self) -> None:
        """From now on the pool says that it takes no more jobs."""
        self.draining = True

    # --- on NATS ------------------------------------------------------------------------------

    async def introduce(self) -> None:
        """To somebody new: how scripts are built, what is offered, a sign of life."""
        message = publications.config(self._name, self._site.pool.build)
        await self._publish(subjects.CONFIG, codec.encode(message))
        self._offer = None
        await self._resources()
        await self._heartbeat()

    async def _publish(self, kind: str, raw: bytes) -> None:
        async with self._link.chunked_if_large(subjects.ANSWER_PARTS, self._name, raw) as payload:
            await self._link.publish_raw(self._subjects[kind], payload)

    async def _changes(self) -> None:
        """What has changed, in as many publications as it takes."""
        dumped, gone = self._site.table.news()
        if not dumped and not gone:
            return
        for part in _parts(dumped, self._room(gone)):
            self._number += 1
            payload = publications.statuses(self._header(tuple(gone)), part)
            gone = []
            await self._publish(subjects.STATUS, payload)

    def _room(self, gone: list[str]) -> int:
        return max(self._link.part_size - ROOM - _size(gone), LEAST_ROOM)

    async def _heartbeat(self) -> None:
        await self._publish(subjects.STATUS, publications.statuses(self._header(()), []))

    async def _resources(self) -> None:
        offer = await asyncio.to_thread(self._offered)
        if self._offer is not None and offer.quotas != self._offer.quotas:
            logger.info("pool=%s: offers %s", self._name, dict(offer.quotas))
        self._offer = offer
        message = publications.resources(offer)
        await self._link.publish(self._subjects[subjects.RESOURCES], message, compress=False)

    def _offered(self) -> Resources:
        """While the batch system cannot be asked, its last word stands, and why is said."""
        pool, trouble = self._site.pool, ""
        try:
            self._found = self._site.backend.capacity()
        except SubmitterError as error:
            trouble = one_line(str(error))
        self._unknown.set(trouble)
        return Resources(
            pool=self._name,
            quotas={**self._found, **pool.resources},
            labels=tuple(f"{key}={value}" for key, value in pool.labels.items()),
            taints=tuple(pool.taints),
            draining=self.draining,
            interval_s=pool.timing.resources_s,
            trouble=trouble,
        )

    # --- answers --------------------------------------------------------------------------------

    def page(self, wanted: Query) -> bytes:
        """States, as many as go in one message: of the jobs that were named, or of all."""
        table, room = self._site.table, self._link.part_size - ROOM
        if wanted.jobs is None:
            dumped, cursor = table.page(wanted.cursor, room)
            return publications.statuses(self._header((), cursor), dumped)
        gone: list[str] = []
        dumped = []
        names = sorted(set(wanted.jobs))
        for name in names:
            if name <= wanted.cursor:
                continue
            entry = table.get(name)
            if entry is None:
                gone.append(name)
            else:
                dumped.append(entry.dump())
            room -= len(dumped[-1]) if entry is not None else len(name) + 3
            if room < 0 and name != names[-1]:
                return publications.statuses(self._header(tuple(gone), name), dumped)
        return publications.statuses(self._header(tuple(gone)), dumped)

    def _header(self, gone: tuple[str, ...], cursor: str = "") -> Statuses:
        count = len(self._site.table)
        return Statuses(self._name, self._instance, self._number, count, (), gone, cursor)


def _size(names: list[str]) -> int:
    return sum(len(name) + 3 for name in names)


def _parts(dumped: list[bytes], room: int) -> list[list[bytes]]:
    """The states in lists that fit into a publication each; at least one list."""
    parts: list[list[bytes]] = [[]]
    left = room
    for status in dumped:
        left -= len(status) + 1
        if left < 0 and parts[-1]:
            parts.append([])
            left = room - len(status)
        parts[-1].append(status)
    return parts
