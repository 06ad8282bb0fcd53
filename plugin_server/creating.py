"""Creates: from interLink's request to a job that is journaled at its site, exactly once."""

from __future__ import annotations

import concurrent.futures
import json
import logging
import threading
import time
from typing import Callable, NamedTuple, Optional

from plugin_server.asked import named_pool
from plugin_server.deleting import Deletions
from plugin_server.errors import Busy, Deleted, Malformed, Refused
from plugin_server.gateway import Gateway
from plugin_server.pools import Pools
from plugin_server.sending import LAST_WORD_S, Sender
from plugin_server.states_table import StatesTable
from templates.errors import PodRejected
from templates.job import Job, build
from templates.pod import Pod
from templates.publications import Config
from templates.request import read_create_request
from templates.states import Identity, accepted

logger = logging.getLogger(__name__)

CONFIG_WAIT_S = 5.0  # for a pool that has not been heard of, with a connection to NATS


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
        self.origin: Callable[[], str] = lambda: ""  # the cluster, if somebody knows it
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
            self._table.refusals.forget(pod.uid)
            mine.set_result(job)
            return job
        except BaseException as error:
            if isinstance(error, Refused):
                logger.warning("pod %s/%s: %s", pod.namespace, pod.name, error)
                if not isinstance(error, Deleted):  # then nobody asks how it is doing
                    self._table.refusals.note(pod.uid, str(error))
            mine.set_exception(error)
            raise
        finally:
            with self._lock:
                del self._running[pod.uid]

    def _submit(self, pod: Pod, deadline: float) -> str:
        if self._deletions.is_deleted(pod.uid):
            raise Deleted(pod.name)
        pool = self._pool(pod)
        known = self._table.find(pod.uid, pool)
        if known is not None:
            return known.status.job
        job = self._build(pod, pool, deadline)
        refused = self._sender.send(pool, job, max(deadline - time.monotonic(), 0.0))
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

    def _config(self, pool: str, deadline: float) -> Optional[Config]:
        """How the pool builds scripts; if need be it is asked for, on a connection that lasts."""
        config = self._pools.config(pool)
        is_asked = False
        while config is None and not is_asked and time.monotonic() < deadline:
            is_asked = self._gateway.is_connected
            self._sender.say_hello()
            wait_s = min(CONFIG_WAIT_S, max(deadline - time.monotonic(), 0.0))
            config = self._pools.config(pool, wait_s)
            is_asked = is_asked and self._gateway.is_connected
        return config

    def _build(self, pod: Pod, pool: str, deadline: float) -> Job:
        config = self._config(pool, deadline)
        if config is None:
            trouble = self._gateway.trouble
            why = f"no connection to NATS: {trouble}" if trouble else self._alive()
            raise Refused(
                503,
                f"nothing was submitted: pool {pool} has not been heard of ({why}); choose another "
                "pool, or ask the admin of the pool to start its submitter",
            )
        try:
            return build(pod, config.build)._replace(origin=self.origin())
        except PodRejected as error:
            raise Refused(400, f"nothing was submitted: pool {pool}: {error}") from None


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
