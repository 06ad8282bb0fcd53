"""Creates: from interLink's request to a job that is journaled at its site, exactly once."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import logging
import threading
import time
from collections.abc import Iterator
from typing import Callable, NamedTuple, Optional, Union

from plugin_server.common.errors import Busy, Deleted, Malformed, Refused
from plugin_server.interlink.requests import Asked, decode, named_pool, read
from plugin_server.nats.handover import Handover
from plugin_server.pods.config_requests import ConfigRequests
from plugin_server.state.job_table import StatesTable
from plugin_server.state.pending_deletes import Deletions
from plugin_server.state.pools import Pools
from plugin_server.state.rejections import Refusals
from templates.common.errors import PodRejected
from templates.job.model import Job
from templates.job.status import JobIdentity, accepted_status
from templates.pod.create_request import read_create_request
from templates.pod.model import Pod
from templates.protocol.publications import Config
from templates.translation.build import build

logger = logging.getLogger(__name__)


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
        pools: Pools,
        table: StatesTable,
        deletions: Deletions,
        handover: Handover,
        *,
        configs: ConfigRequests,
        refusals: Refusals,
        origin: Callable[[], str],  # the cluster, if somebody knows it
    ) -> None:
        self._settings = settings
        self._pools = pools
        self._table = table
        self._deletions = deletions
        self._handover = handover
        self._configs = configs
        self._origin = origin
        self._refusals = refusals
        self._waiting = 0
        self._running: dict[str, concurrent.futures.Future[str]] = {}  # by the pod's uid
        self._lock = threading.Lock()  # of the two above

    def create(self, body: bytes) -> bytes:
        """Return the answer to a create request; raises ``Refused``."""
        deadline = time.monotonic() + self._settings.timeout_s
        with self._counted(body):
            pod = self._read(body)
            job = self._once(pod, deadline)
        return json.dumps({"PodUID": pod.uid, "PodJID": job}, separators=(",", ":")).encode()

    def wait_for_all(self, timeout_s: float) -> None:
        """Return when those that have begun are over, or after so long."""
        with self._lock:
            running = list(self._running.values())
        concurrent.futures.wait(running, timeout_s)

    @contextlib.contextmanager
    def _counted(self, body: bytes) -> Iterator[None]:
        """Count one that waits, unless so many do that there may be no more."""
        at_once = self._settings.at_once
        with self._lock:
            has_room = self._waiting < at_once
            self._waiting += has_room
        if not has_room:
            words = f"nothing was submitted: {at_once} pods wait for their sites; try it later"
            raise self._unread(body, Busy(words))
        try:
            yield
        finally:
            with self._lock:
                self._waiting -= 1

    def _read(self, body: bytes) -> Pod:
        try:
            return read_create_request(body)
        except PodRejected as error:
            raise self._unread(body, Malformed(f"nothing was submitted: {error}")) from None

    def _unread(self, body: bytes, error: Refused) -> Refused:
        """The error, noted for the pod that was sent, if that says whose it is."""
        pod = _whose(body)
        if pod is not None:
            self._note(pod, error)
        return error

    def _note(self, pod: Union[Pod, Asked], error: Refused) -> None:
        """Say why a pod was refused: to the log, and to who asks how it is doing."""
        logger.warning("pod %s/%s: %s", pod.namespace, pod.name, error)
        if not isinstance(error, Deleted):  # then nobody asks
            self._refusals.note(pod.uid, str(error))

    def _once(self, pod: Pod, deadline: float) -> str:
        """One submission per pod, however often it is asked for at the same time."""
        mine: concurrent.futures.Future[str] = concurrent.futures.Future()
        with self._lock:
            first = self._running.setdefault(pod.uid, mine)
        if first is not mine:
            return _result(first, deadline - time.monotonic())
        try:
            job = self._submit(pod, deadline)
        except BaseException as error:
            if isinstance(error, Refused):
                self._note(pod, error)
            mine.set_exception(error)
            raise
        else:
            self._refusals.forget(pod.uid)
            mine.set_result(job)
            return job
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
        config = self._pools.config(pool) or self._heard(pool, deadline)
        job = self._build(pod, pool, config)
        refused = self._handover.send(pool, job, max(deadline - time.monotonic(), 0.0))
        if refused is not None:
            raise refused
        identity = JobIdentity(
            job.name, job.uid, job.namespace, job.pod, job.containers, job.origin
        )
        self._table.enter(pool, accepted_status(identity))
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

    def _heard(self, pool: str, deadline: float) -> Config:
        """How a pool that has not been heard of builds scripts."""
        config = self._configs.config(pool, max(deadline - time.monotonic(), 0.0))
        if config is not None:
            return config
        error = self._configs.error
        why = f"no connection to NATS: {error}" if error else self._alive()
        raise Refused(
            503,
            f"nothing was submitted: pool {pool} has not been heard of ({why}); choose another "
            "pool, or ask the admin of the pool to start its submitter",
        )

    def _build(self, pod: Pod, pool: str, config: Config) -> Job:
        try:
            return build(pod, config.build)._replace(origin=self._origin())
        except PodRejected as error:
            raise Refused(400, f"nothing was submitted: pool {pool}: {error}") from None


def _whose(body: bytes) -> Optional[Asked]:
    """The pod of a request, as far as it takes to name it; None when it cannot be told."""
    try:
        request = decode(body)
        return read(request.get("pod") if type(request) is dict else request)
    except Malformed:
        return None


def _result(first: concurrent.futures.Future[str], timeout_s: float) -> str:
    """What became of the same create when it was asked for before."""
    (done, _) = concurrent.futures.wait((first,), max(timeout_s, 0.0))
    if not done:
        raise Busy("nothing was submitted: the same create is still on its way")
    return first.result()
