"""Create requests: from a pod to a job that is journaled at its site, exactly once."""

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
from plugin_server.interlink.requests import RequestedPod, decode, named_pool, read_pod
from plugin_server.nats.handover import Handover
from plugin_server.pods.config_requests import ConfigRequests
from plugin_server.state.job_table import JobTable
from plugin_server.state.pending_deletes import Deletions
from plugin_server.state.pools import Pools
from plugin_server.state.rejections import Rejections
from templates.common.errors import PodRejected
from templates.job.model import Job
from templates.job.status import JobIdentity, accepted_status
from templates.pod.create_request import REQUEST, read_create_request
from templates.pod.model import Pod
from templates.protocol.publications import Config
from templates.translation.build import build

logger = logging.getLogger(__name__)


class CreateSettings(NamedTuple):
    """Settings of create requests."""

    default_pool: str
    timeout_s: float
    at_once: int


class Creates:
    """Create requests; called by any number of threads."""

    def __init__(
        self,
        settings: CreateSettings,
        pools: Pools,
        table: JobTable,
        deletions: Deletions,
        handover: Handover,
        *,
        configs: ConfigRequests,
        rejections: Rejections,
        origin: Callable[[], str],  # uid of this cluster; empty if unknown
    ) -> None:
        self._settings = settings
        self._pools = pools
        self._table = table
        self._deletions = deletions
        self._handover = handover
        self._configs = configs
        self._origin = origin
        self._rejections = rejections
        self._waiting = 0
        self._running: dict[str, concurrent.futures.Future[str]] = {}  # by the pod's uid
        self._lock = threading.Lock()  # for the two above

    def create(self, body: bytes) -> bytes:
        """Return the response to a create request; raises ``Refused``."""
        deadline = time.monotonic() + self._settings.timeout_s
        with self._count_waiting(body):
            pod = self._read(body)
            job = self._submit_once(pod, deadline)
        return json.dumps({"PodUID": pod.uid, "PodJID": job}, separators=(",", ":")).encode()

    def wait_for_all(self, timeout_s: float) -> None:
        """Wait for the running creates, at most ``timeout_s``."""
        with self._lock:
            running = list(self._running.values())
        concurrent.futures.wait(running, timeout_s)

    @contextlib.contextmanager
    def _count_waiting(self, body: bytes) -> Iterator[None]:
        """Count a waiting create; raises ``Busy`` if there are too many."""
        at_once = self._settings.at_once
        with self._lock:
            has_room = self._waiting < at_once
            self._waiting += has_room
        if not has_room:
            message = f"nothing was submitted: {at_once} pods wait for their sites; try it later"
            raise self._reject_body(body, Busy(message))
        try:
            yield
        finally:
            with self._lock:
                self._waiting -= 1

    def _read(self, body: bytes) -> Pod:
        try:
            return read_create_request(body)
        except PodRejected as error:
            malformed = Malformed(f"nothing was submitted: {error}")
            if error.field == REQUEST:  # it has no pod, and to read it again would take long
                raise malformed from None
            raise self._reject_body(body, malformed) from None

    def _reject_body(self, body: bytes, error: Refused) -> Refused:
        """Return the error, after noting it for the pod, if the body names one."""
        pod = _pod_of(body)
        if pod is not None:
            self._note_rejection(pod, error)
        return error

    def _note_rejection(self, pod: Union[Pod, RequestedPod], error: Refused) -> None:
        """Log why a pod was rejected, and keep it for status requests."""
        logger.warning("pod %s/%s: %s", pod.namespace, pod.name, error)
        if not isinstance(error, Deleted):  # its status is not requested
            self._rejections.add(pod.uid, str(error))

    def _submit_once(self, pod: Pod, deadline: float) -> str:
        """Submit a pod once, however many requests for it there are at the same time."""
        mine: concurrent.futures.Future[str] = concurrent.futures.Future()
        with self._lock:
            first = self._running.setdefault(pod.uid, mine)
        if first is not mine:
            return _result_of(first, deadline - time.monotonic())
        try:
            job = self._submit(pod, deadline)
        except BaseException as error:
            if isinstance(error, Refused):
                self._note_rejection(pod, error)
            mine.set_exception(error)
            raise
        else:
            self._rejections.remove(pod.uid)
            mine.set_result(job)
            return job
        finally:
            with self._lock:
                del self._running[pod.uid]

    def _submit(self, pod: Pod, deadline: float) -> str:
        if self._deletions.is_deleted(pod.uid):
            raise Deleted(pod.name)
        pool = self._pool_of(pod)
        known = self._table.find(pod.uid, pool)
        if known is not None:
            return known.status.job
        config = self._pools.config(pool) or self._request_config(pool, deadline)
        job = self._build(pod, pool, config)
        refused = self._handover.send(pool, job, max(deadline - time.monotonic(), 0.0))
        if refused is not None:
            raise refused
        identity = JobIdentity(
            job.name, job.uid, job.namespace, job.pod, job.containers, job.origin
        )
        self._table.add_accepted(pool, accepted_status(identity))
        logger.info("%s: taken by pool %s", job.name, pool, extra={"job": job.name})
        return job.name

    def _pool_of(self, pod: Pod) -> str:
        try:
            pool = named_pool(pod.tolerations, pod.annotations) or self._settings.default_pool
        except PodRejected as error:
            raise Malformed(f"nothing was submitted: {error}") from None
        if pool:
            return pool
        raise Refused(
            400,
            "nothing was submitted: the pod names no pool; give it the toleration pool.vk.io with "
            f"the name of a pool as its value ({self._describe_pools()})",
        )

    def _describe_pools(self) -> str:
        alive = self._pools.describe_alive()
        return f"alive: {alive}" if alive else "no pool is alive now"

    def _request_config(self, pool: str, deadline: float) -> Config:
        """Request the build configuration of a pool that was not heard from."""
        config = self._configs.config(pool, max(deadline - time.monotonic(), 0.0))
        if config is not None:
            return config
        error = self._configs.error
        reason = f"no connection to NATS: {error}" if error else self._describe_pools()
        raise Refused(
            503,
            f"nothing was submitted: pool {pool} has not been heard of ({reason}); choose another "
            "pool, or ask the admin of the pool to start its submitter",
        )

    def _build(self, pod: Pod, pool: str, config: Config) -> Job:
        try:
            return build(pod, config.build)._replace(origin=self._origin())
        except PodRejected as error:
            raise Refused(400, f"nothing was submitted: pool {pool}: {error}") from None


def _pod_of(body: bytes) -> Optional[RequestedPod]:
    """Return the pod of a rejected request; None if it cannot be read."""
    try:
        request = decode(body)
        return read_pod(request.get("pod") if type(request) is dict else request)
    except Malformed:
        return None


def _result_of(first: concurrent.futures.Future[str], timeout_s: float) -> str:
    """Return the result of the same create, which another thread has begun."""
    (done, _) = concurrent.futures.wait((first,), max(timeout_s, 0.0))
    if not done:
        raise Busy("nothing was submitted: the same create is still on its way")
    return first.result()
