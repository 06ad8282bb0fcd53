"""Jobs on their way to their sites: those that wait for the same site travel together.

The first goes at once; what comes while it is on its way shares the next message, as long as the
site answers soon. A message to a site that is slow holds up nobody: the next leaves without it.

A job is sent until its site answers or its time is over. A site that has been asked and has not
answered may still take the job: then the job is deleted there before the pod fails, so that the
line the user reads is true.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Coroutine, Sequence
from typing import Any, Optional

from plugin_server.common.errors import Deleted, Refused
from plugin_server.nats.bridge import BridgeError
from plugin_server.nats.gateway import Gateway
from plugin_server.state.pending_deletes import Deletions
from templates.common.errors import WireError
from templates.job.model import Job
from templates.nats.requests import LinkError, NoResponders, NotConnected, Unanswered
from templates.protocol import messages
from templates.protocol.messages import Refusal

logger = logging.getLogger(__name__)

ANSWER_S = 8.0  # for the first answer of a site; twice as long each time, for large jobs
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
LEAST_ANSWER_S = 0.5
SOON_S = 0.02  # how long the next message waits for the answer to the one before
STOPPING = "the plugin is stopping"
TOGETHER_BYTES = 192 * 1024  # of scripts and files in one message, unless a single job has more


class Parcel:
    """One job on its way, and what becomes of it; a request's thread makes it, and waits."""

    def __init__(self, pool: str, job: Job, timeout_s: float) -> None:
        self.pool, self.job = pool, job
        self.timeout_s = timeout_s
        self.deadline = time.monotonic() + timeout_s
        self.size = len(job.script) + sum(len(file.content) for file in job.files)
        self.trouble = "was not asked"
        self.perhaps = False  # the site may have taken the job although it has not said so
        self._refused: Optional[Refused] = None
        self._is_settled = threading.Event()

    def settle(self, refused: Optional[Refused]) -> None:
        """Tell the thread that waits: None for a job that its site has."""
        self._refused = refused
        self._is_settled.set()

    def wait(self, timeout_s: float) -> Optional[Refused]:
        """Return what ``settle`` was told; raises ``BridgeError`` when nobody calls it in time."""
        if not self._is_settled.wait(timeout_s):
            raise BridgeError(f"not done within {timeout_s:g} s")
        return self._refused

    @property
    def left_s(self) -> float:
        """Seconds until its time is over."""
        return self.deadline - time.monotonic()


class _Line:
    """What waits for one site."""

    def __init__(self) -> None:
        self.waiting: list[Parcel] = []
        self.expected: Optional[object] = None  # the message whose answer may come any moment

    def next_message(self) -> list[Parcel]:
        """Those that go together, in the order in which they came."""
        size, count = 0, 0
        for parcel in self.waiting:
            size += parcel.size
            if count and size > TOGETHER_BYTES:
                break
            count += 1
        together, self.waiting = self.waiting[:count], self.waiting[count:]
        return together


class Sender:
    """Takes jobs to their sites; all of it in the loop's thread."""

    def __init__(self, gateway: Gateway, deletions: Deletions) -> None:
        self._gateway = gateway
        self._deletions = deletions
        self._lines: dict[str, _Line] = {}
        self._unsettled: set[Parcel] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_stopped = False

    def take(self, parcels: list[Parcel]) -> None:
        """Send them, each to its site; ``settle`` tells what became of it."""
        for parcel in parcels:
            self._unsettled.add(parcel)
            if self._has_stopped:
                self._settle(parcel, _refused(parcel, 503, STOPPING))
            else:
                self._lines.setdefault(parcel.pool, _Line()).waiting.append(parcel)
        for pool in {parcel.pool for parcel in parcels}:
            if pool in self._lines:
                self._go(self._lines[pool])

    async def stop(self) -> None:
        """Send nothing any more; whoever waits is told so."""
        self._has_stopped = True
        for task in self._tasks:
            task.cancel()
        for parcel in list(self._unsettled):
            self._settle(parcel, _refused(parcel, 503, STOPPING))

    def _settle(self, parcel: Parcel, refused: Optional[Refused] = None) -> None:
        if parcel in self._unsettled:
            self._unsettled.remove(parcel)
            parcel.settle(refused)

    def _go(self, line: _Line) -> None:
        """Send what waits, unless the answer to another message may come any moment."""
        if line.expected is None and line.waiting:
            message = line.expected = line.next_message()
            self._run(self._carry(line, message))
            asyncio.get_running_loop().call_later(SOON_S, self._go_on, line, message)

    def _go_on(self, line: _Line, message: list[Parcel]) -> None:
        if line.expected is message:
            line.expected = None
            self._go(line)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, line: _Line, parcels: list[Parcel]) -> None:
        """Ask the site for all of them at once, then again for each that it has not answered."""
        try:
            undecided = await self._ask(parcels, ANSWER_S)
        finally:
            self._go_on(line, parcels)
        for parcel in undecided:
            self._run(self._insist(parcel))

    async def _insist(self, parcel: Parcel) -> None:
        """Ask for one job until the site says yes or no, or its time is over."""
        pause_s, patience_s = FIRST_PAUSE_S, 2 * ANSWER_S
        while True:
            wait_s = pause_s * random.uniform(0.5, 1.0)  # noqa: S311 (not a secret)
            if wait_s >= parcel.left_s:
                self._settle(parcel, _gave_up(parcel))
                return
            await asyncio.sleep(wait_s)
            if not await self._ask([parcel], patience_s):
                return
            pause_s, patience_s = min(pause_s * 2, LONGEST_PAUSE_S), patience_s * 2

    async def _ask(self, parcels: list[Parcel], patience_s: float) -> list[Parcel]:
        """Send one message; those of the jobs that have to be asked for again."""
        asked = []
        for parcel in parcels:
            if self._deletions.is_deleted(parcel.job.uid):
                parcel.perhaps = False
                self._settle(parcel, Deleted(parcel.job.pod))
            else:
                asked.append(parcel)
        if not asked:
            return []
        left_s = max(LEAST_ANSWER_S, *(parcel.left_s for parcel in asked))
        refusals = await self._refusals(asked, min(patience_s, left_s))
        undecided = []
        for parcel, refusal in zip(asked, refusals):
            if refusal is None:
                self._settle(parcel)
            elif refusal.retry:
                parcel.trouble = refusal.message
                undecided.append(parcel)
            else:
                parcel.perhaps = False
                self._settle(parcel, _final(parcel, refusal))
        return undecided

    async def _refusals(
        self, parcels: list[Parcel], timeout_s: float
    ) -> Sequence[Optional[Refusal]]:
        pool = parcels[0].pool
        perhaps = False
        try:
            return await self._gateway.create(pool, [p.job for p in parcels], timeout_s)
        except NoResponders:
            words = "no submitter of it is connected"
        except NotConnected:
            words = f"the plugin has no connection to NATS ({self._gateway.trouble or 'just lost'})"
        except Unanswered:
            perhaps, words = True, "its submitter does not answer"
        except (LinkError, WireError) as error:
            perhaps, words = True, str(error)
        for parcel in parcels:
            parcel.perhaps |= perhaps
        return [Refusal(messages.UNAVAILABLE, words, True)] * len(parcels)


def _refused(parcel: Parcel, status: int, words: str) -> Refused:
    return Refused(status, f"nothing was submitted: pool {parcel.pool}: {words}")


def _final(parcel: Parcel, refusal: Refusal) -> Refused:
    pool, words = parcel.pool, refusal.message
    if refusal.code == messages.DELETED:
        return Deleted(parcel.job.pod)
    if refusal.code == messages.FORBIDDEN:
        return Refused(403, f"nothing was submitted: pool {pool} refuses the pod: {words}")
    if refusal.code == messages.MALFORMED:
        return Refused(
            502,
            f"nothing was submitted: pool {pool} does not understand the plugin ({words}); its "
            "submitter may be of another version: tell its admin",
        )
    return _refused(parcel, 503, words)


def _gave_up(parcel: Parcel) -> Refused:
    words = (
        f"{parcel.trouble}, waited {parcel.timeout_s:.0f} s; choose another pool, or ask the "
        "pool's admin"
    )
    return _refused(parcel, 504, words)
