"""Creates: from interLink's request to a job that is journaled at its site, exactly once."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any, Callable, NamedTuple, Optional, TypeVar, Union

from plugin_server.common.errors import Busy, Deleted, Malformed, Refused
from plugin_server.interlink.requests import Asked, decode, named_pool, read
from plugin_server.nats.gateway import Gateway
from plugin_server.pods.delete import Deletions
from plugin_server.pods.outbox import Sender
from plugin_server.state.job_table import StatesTable
from plugin_server.state.pools import Pools
from plugin_server.state.rejections import Refusals
from templates.common.errors import PodRejected
from templates.job.model import Job
from templates.job.status import Identity, accepted
from templates.pod.create_request import read_create_request
from templates.pod.model import Pod
from templates.protocol.publications import Config
from templates.translation.build import build

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

LARGE = 256 * 1024  # bytes of a request that takes so long to translate that others would notice
CONFIG_WAIT_S = 5.0  # for a pool that has not been heard of, with a connection to NATS


class CreateSettings(NamedTuple):
    """What the admin has said about creates."""

    default_pool: str
    timeout_s: float
    at_once: int


class Creates:
    """What ``/create`` does; all of it in the loop's thread, but the translation of large pods."""

    def __init__(
        self,
        settings: CreateSettings,
        gateway: Gateway,
        pools: Pools,
        table: StatesTable,
        deletions: Deletions,
        sender: Sender,
    ) -> None:
        self._settings = settings
        self._gateway = gateway
        self._pools = pools
        self._table = table
        self._deletions = deletions
        self._sender = sender
        self.refusals = Refusals()
        self.origin: Callable[[], str] = lambda: ""  # the cluster, if somebody knows it
        self._waiting = 0
        self._running: dict[str, asyncio.Future[str]] = {}  # by the pod's uid

    async def create(self, body: bytes) -> bytes:
        """The answer to a create request; raises ``Refused``."""
        deadline = time.monotonic() + self._settings.timeout_s
        at_once = self._settings.at_once
        if self._waiting >= at_once:
            words = f"nothing was submitted: {at_once} pods wait for their sites; try it later"
            raise await self._unread(body, Busy(words))
        self._waiting += 1
        try:
            pod = await self._read(body)
            job = await self._once(pod, len(body), deadline)
        finally:
            self._waiting -= 1
        return json.dumps({"PodUID": pod.uid, "PodJID": job}, separators=(",", ":")).encode()

    async def ended(self, timeout_s: float) -> None:
        """Return when those that have begun are answered, or after so long."""
        if self._running:
            await asyncio.wait(self._running.values(), timeout=timeout_s)

    async def _read(self, body: bytes) -> Pod:
        try:
            return await _aside(len(body), read_create_request, body)
        except PodRejected as error:
            raise await self._unread(body, Malformed(f"nothing was submitted: {error}")) from None

    async def _unread(self, body: bytes, error: Refused) -> Refused:
        """The error, noted for the pod that was sent, if that says whose it is."""
        pod = await _aside(len(body), _whose, body)
        if pod is not None:
            self._note(pod, error)
        return error

    def _note(self, pod: Union[Pod, Asked], error: Refused) -> None:
        """Say why a pod was refused: to the log, and to who asks how it is doing."""
        logger.warning("pod %s/%s: %s", pod.namespace, pod.name, error)
        if not isinstance(error, Deleted):  # then nobody asks
            self.refusals.note(pod.uid, str(error))

    async def _once(self, pod: Pod, size: int, deadline: float) -> str:
        """One submission per pod, however often it is asked for at the same time."""
        first = self._running.get(pod.uid)
        if first is not None:
            return await _result(first, deadline - time.monotonic())
        mine = self._running[pod.uid] = asyncio.get_running_loop().create_future()
        try:
            job = await self._submit(pod, size, deadline)
        except BaseException as error:
            if isinstance(error, Refused):
                self._note(pod, error)
            mine.set_exception(error)
            mine.exception()  # heard, even if nobody else waits for it
            raise
        else:
            self.refusals.forget(pod.uid)
            mine.set_result(job)
            return job
        finally:
            del self._running[pod.uid]

    async def _submit(self, pod: Pod, size: int, deadline: float) -> str:
        if self._deletions.is_deleted(pod.uid):
            raise Deleted(pod.name)
        pool = self._pool(pod)
        known = self._table.find(pod.uid, pool)
        if known is not None:
            return known.status.job
        config = self._pools.config(pool) or await self._heard(pool, deadline)
        job = await _aside(size, self._build, pod, pool, config)
        refused = await self._sender.send(pool, job, max(deadline - time.monotonic(), 0.0))
        if refused is not None:
            raise refused
        identity = Identity(job.name, job.uid, job.namespace, job.pod, job.containers, job.origin)
        self._table.enter(pool, accepted(identity))
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
        alive = self._pools.choices()
        return f"alive: {alive}" if alive else "no pool is alive now"

    async def _heard(self, pool: str, deadline: float) -> Config:
        """How the pool builds scripts, asked for on a connection that lasts."""
        config, is_asked = None, False
        while config is None and not is_asked and time.monotonic() < deadline:
            is_asked = self._gateway.is_connected
            await self._sender.say_hello()
            wait_s = min(CONFIG_WAIT_S, max(deadline - time.monotonic(), 0.0))
            config = await self._pools.config_heard(pool, wait_s)
            is_asked = is_asked and self._gateway.is_connected
        if config is not None:
            return config
        trouble = self._gateway.trouble
        why = f"no connection to NATS: {trouble}" if trouble else self._alive()
        raise Refused(
            503,
            f"nothing was submitted: pool {pool} has not been heard of ({why}); choose another "
            "pool, or ask the admin of the pool to start its submitter",
        )

    def _build(self, pod: Pod, pool: str, config: Config) -> Job:
        try:
            return build(pod, config.build)._replace(origin=self.origin())
        except PodRejected as error:
            raise Refused(400, f"nothing was submitted: pool {pool}: {error}") from None


async def _aside(size: int, work: Callable[..., Result], *arguments: Any) -> Result:
    """What a function returns; what would take long does so in another thread."""
    if size < LARGE:
        return work(*arguments)
    return await asyncio.to_thread(work, *arguments)


def _whose(body: bytes) -> Optional[Asked]:
    """The pod of a request, as far as it takes to name it; None when it cannot be told."""
    try:
        request = decode(body)
        return read(request.get("pod") if type(request) is dict else request)
    except Malformed:
        return None


async def _result(first: asyncio.Future[str], timeout_s: float) -> str:
    """What became of the same create when it was asked for before."""
    await asyncio.wait([first], timeout=timeout_s)
    if not first.done():
        raise Busy("nothing was submitted: the same create is still on its way")
    return first.result()
