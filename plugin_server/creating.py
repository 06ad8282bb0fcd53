"""Creates: from interLink's request to a job that is journaled at its site, exactly once.

A create is repeated until its site answers or its time is over. A site that has been asked and has
not answered may still take the job: then the job is deleted there before the pod fails, so that the
line the user reads is true.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import logging
import random
import threading
import time
from typing import NamedTuple, Optional

from plugin_server.asked import named_pool
from plugin_server.bridge import Bridge, BridgeError
from plugin_server.deleting import Deletions
from plugin_server.errors import Busy, Malformed, Refused
from plugin_server.gateway import Gateway
from plugin_server.pools import Pools
from plugin_server.states_table import StatesTable
from templates import messages
from templates.asking import LinkError, NoResponders, NotConnected, Unanswered
from templates.errors import PodRejected, WireError
from templates.job import Job, build
from templates.messages import Refusal
from templates.pod import Pod
from templates.request import read_create_request
from templates.results import JobState
from templates.states import Identity, Outlook, status_of

logger = logging.getLogger(__name__)

CONFIG_WAIT_S = 2.0  # for a pool that has not been heard of
ANSWER_S = 8.0  # for the first answer of a site; twice as long each time, for large pods
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
LAST_WORD_S = 10.0  # beyond the deadline, for the thread that waits for the loop


class CreateSettings(NamedTuple):
    """What the admin has said about creates."""

    default_pool: str
    timeout_s: float
    at_once: int


class Creates:
    """What ``/create`` does; called by any number of threads."""

    def __init__(
        self,
        settings: CreateSettings,
        bridge: Bridge,
        gateway: Gateway,
        pools: Pools,
        table: StatesTable,
        deletions: Deletions,
    ) -> None:
        self._settings = settings
        self._bridge = bridge
        self._gateway = gateway
        self._pools = pools
        self._table = table
        self._deletions = deletions
        self._room = threading.BoundedSemaphore(settings.at_once)
        self._running: dict[str, concurrent.futures.Future[str]] = {}
        self._lock = threading.Lock()

    def create(self, body: bytes) -> bytes:
        """The answer to a create request; raises ``Refused``."""
        deadline = time.monotonic() + self._settings.timeout_s
        if not self._room.acquire(blocking=False):
            at_once = self._settings.at_once
            raise Busy(f"nothing was submitted: {at_once} pods wait for their sites; try it later")
        try:
            pod = _read(body)
            job = self._once(pod, deadline)
        finally:
            self._room.release()
        return json.dumps({"PodUID": pod.uid, "PodJID": job}, separators=(",", ":")).encode()

    def _once(self, pod: Pod, deadline: float) -> str:
        """One submission per pod, however often it is asked for at the same time."""
        with self._lock:
            first = self._running.get(pod.uid)
            mine: concurrent.futures.Future[str] = concurrent.futures.Future()
            if first is None:
                self._running[pod.uid] = mine
        if first is not None:
            return _result(first, deadline - time.monotonic() + 2 * LAST_WORD_S)
        try:
            job = self._submit(pod, deadline)
            mine.set_result(job)
            return job
        except BaseException as error:
            mine.set_exception(error)
            raise
        finally:
            with self._lock:
                del self._running[pod.uid]

    def _submit(self, pod: Pod, deadline: float) -> str:
        if self._deletions.is_deleted(pod.uid):
            raise _deleted(pod)
        pool = self._pool(pod)
        known = self._table.find(pod.uid, pool)
        if known is not None:
            return known.status.job
        job = self._build(pod, pool)
        left_s = max(deadline - time.monotonic(), 0.0)
        sender = _Sender(self._gateway, self._deletions, pool, job)
        try:
            refused = self._bridge.call(sender.send(left_s), left_s + LAST_WORD_S)
        except BridgeError as error:
            # The site may have it, or not: it must not run for a pod that has failed.
            self._deletions.add(pool, job.name, None)
            raise Refused(503, f"nothing was submitted: pool {pool}: {error}") from None
        if refused is not None:
            raise refused
        identity = Identity(job.name, job.uid, job.namespace, job.pod, job.containers)
        self._table.enter(pool, status_of(identity, Outlook(), JobState(), 0))
        logger.info("%s: taken by pool %s", job.name, pool, extra={"job": job.name})
        return job.name

    def _pool(self, pod: Pod) -> str:
        try:
            pool = named_pool(pod.tolerations, pod.annotations) or self._settings.default_pool
        except PodRejected as error:
            raise Malformed(f"nothing was submitted: {error}") from None
        if pool:
            return pool
        raise Refused(
            400,
            "nothing was submitted: the pod names no pool; give it the toleration pool.vk.io with "
            f"the name of a pool as its value ({self._alive()})",
        )

    def _alive(self) -> str:
        alive = self._pools.alive()
        return f"alive: {', '.join(alive)}" if alive else "no pool is alive now"

    def _build(self, pod: Pod, pool: str) -> Job:
        config = self._pools.config(pool)
        if config is None:
            self._bridge.spawn(_hello(self._gateway))
            config = self._pools.config(pool, CONFIG_WAIT_S)
        if config is None:
            trouble = self._gateway.trouble
            why = f"no connection to NATS: {trouble}" if trouble else self._alive()
            raise Refused(
                503,
                f"nothing was submitted: pool {pool} has not been heard of ({why}); choose another "
                "pool, or ask the admin of the pool to start its submitter",
            )
        try:
            return build(pod, config.build)
        except PodRejected as error:
            raise Refused(400, f"nothing was submitted: pool {pool}: {error}") from None


class _Sender:
    """One job on its way; lives in the loop's thread."""

    def __init__(self, gateway: Gateway, deletions: Deletions, pool: str, job: Job) -> None:
        self._gateway = gateway
        self._deletions = deletions
        self._pool = pool
        self._job = job
        self._trouble = "was not asked"
        self._perhaps = False  # the site may have taken the job although it has not said so

    async def send(self, timeout_s: float) -> Optional[Refused]:
        """None when the job is journaled at its site; else why it is not, and never will be."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        message = messages.create(self._job)
        pause, patience = FIRST_PAUSE_S, ANSWER_S
        while True:
            if self._deletions.is_deleted(self._job.uid):
                return _refused_as_deleted(self._job.name)
            refusal = await self._ask(message, min(patience, max(deadline - loop.time(), 0.5)))
            if refusal is None:
                return None
            if not refusal.retry:
                return self._final(refusal)
            self._trouble = refusal.message
            wait_s = pause * random.uniform(0.5, 1.0)  # noqa: S311 (not a secret)
            if loop.time() + wait_s >= deadline:
                return self._gave_up(timeout_s)
            await asyncio.sleep(wait_s)
            pause, patience = min(pause * 2, LONGEST_PAUSE_S), patience * 2

    async def _ask(self, message: dict[str, object], timeout_s: float) -> Optional[Refusal]:
        try:
            return await self._gateway.create(self._pool, self._job.name, message, timeout_s)
        except NoResponders:
            words = "no submitter of it is connected"
        except NotConnected:
            words = f"the plugin has no connection to NATS ({self._gateway.trouble or 'just lost'})"
        except Unanswered:
            self._perhaps = True
            words = "its submitter does not answer"
        except (LinkError, WireError) as error:
            self._perhaps = True
            words = str(error)
        return Refusal(messages.UNAVAILABLE, words, True)

    def _final(self, refusal: Refusal) -> Refused:
        pool, words = self._pool, refusal.message
        if refusal.code == messages.DELETED:
            return _refused_as_deleted(self._job.name)
        if refusal.code == messages.FORBIDDEN:
            return Refused(403, f"nothing was submitted: pool {pool} refuses the pod: {words}")
        if refusal.code == messages.MALFORMED:
            return Refused(
                502,
                f"nothing was submitted: pool {pool} does not understand the plugin ({words}); its "
                "submitter may be of another version: tell its admin",
            )
        return Refused(503, f"nothing was submitted: pool {pool}: {words}")

    def _gave_up(self, waited_s: float) -> Refused:
        if self._perhaps:
            self._deletions.add(self._pool, self._job.name, None)
        return Refused(
            504,
            f"nothing was submitted: pool {self._pool}: {self._trouble}, waited {waited_s:.0f} s; "
            "choose another pool, or ask the pool's admin",
        )


def _read(body: bytes) -> Pod:
    try:
        return read_create_request(body)
    except PodRejected as error:
        raise Malformed(f"nothing was submitted: {error}") from None


def _result(first: concurrent.futures.Future[str], timeout_s: float) -> str:
    """What became of the same create when it was asked for before."""
    try:
        return first.result(timeout_s)
    except TimeoutError:
        raise Busy("nothing was submitted: the same create is still on its way") from None


def _deleted(pod: Pod) -> Refused:
    return Refused(409, f"nothing was submitted: the pod {pod.name} was deleted before")


def _refused_as_deleted(job: str) -> Refused:
    return Refused(409, f"nothing was submitted: the pod of {job} was deleted before")


async def _hello(gateway: Gateway) -> None:
    try:
        await gateway.hello()
    except LinkError as error:
        logger.debug("no hello: %s", error)
