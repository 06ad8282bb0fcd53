"""Status requests: responses from memory, cached as bytes until a status changes.

The virtual kubelet requests one pod per call, again and again with the same bytes until something
changes: the cache key of a response is the digest of the request.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Collection
from typing import Any, NamedTuple, Optional

from plugin_server.common.errors import Malformed
from plugin_server.interlink import requests
from plugin_server.interlink.requests import RequestedPod
from plugin_server.interlink.responses import pod_status, preliminary_status
from plugin_server.pods import ping
from plugin_server.pods.missing_jobs import UnknownPods
from plugin_server.state.job_table import Entry, JobTable
from plugin_server.state.pools import Pools
from templates.job.records import RUNNING, TERMINATED, WAITING
from templates.job.status import ENDED

PING = b"[]"
SMALL_REQUEST = 64 * 1024  # bytes of a request for one pod, or a few
MAX_RESPONSES = 16384
MAX_LARGE_RESPONSES = 8
MAX_PRELIMINARIES = 10_000


class _Cached(NamedTuple):
    """Cached response, valid as long as its entries are in the table."""

    pods: list[tuple[str, str, Entry]]  # uid, the pool that it names, its entry
    response: bytes


class StatusRequests:
    """Status requests; called by any number of threads."""

    def __init__(self, pools: Pools, table: JobTable, unknown: UnknownPods) -> None:
        self._pools = pools
        self._table = table
        self._unknown = unknown
        self._responses: dict[bytes, _Cached] = {}  # by the digest of the request
        self._large_responses: dict[bytes, _Cached] = {}
        self._preliminary_sent: dict[str, Entry] = {}  # uid -> the entry for which it was sent
        self._lock = threading.Lock()

    def cached_response(self, body: bytes) -> Optional[bytes]:
        """Return the response to a ping, or one from the cache; None if there is none."""
        if body == PING:
            return ping.answer(self._pools)
        cached = self._cache_for(body).get(_digest(body))
        find = self._table.find
        if cached is not None and all(find(uid, pool) is entry for uid, pool, entry in cached.pods):
            return cached.response
        return None

    def respond(self, body: bytes) -> bytes:
        """Return the response, after queries to sites if needed; raises ``Malformed``."""
        cached = self._respond(requests.decode(body))
        if cached.pods:
            self._store(self._cache_for(body), _digest(body), cached)
        return cached.response

    def _cache_for(self, body: bytes) -> dict[bytes, _Cached]:
        return self._responses if len(body) <= SMALL_REQUEST else self._large_responses

    def _respond(self, raw: Any) -> _Cached:
        """Return the response; without pods if it must not be cached."""
        if type(raw) is not list:
            raise Malformed("the request must be a list of pods")
        if not raw:
            return _Cached([], ping.answer(self._pools))
        pods = [requests.read_pod(pod, f"pod {number}") for number, pod in enumerate(raw)]
        for pod in pods:
            if pod.mains:
                self._table.remember_pool(pod.uid, pod.pool)
        unanswered = self._look_up(pods)
        found = [(p, self._table.find(p.uid, p.pool)) for p in pods if p.uid not in unanswered]
        known, elements = [], []
        for pod, entry in found:
            first = self._preliminary(pod, entry)
            elements.append(first or self._element(pod, entry))
            if entry is not None and pod.mains and not first:
                known.append((pod.uid, pod.pool, entry))
        response = b"[" + b",".join(filter(None, elements)) + b"]"
        return _Cached(known if len(known) == len(raw) else [], response)

    def _look_up(self, pods: list[RequestedPod]) -> Collection[str]:
        """Look up pods that are unknown, or known less well than they were reported before.

        Return the uids to leave out of the response: their site does not reply now, and they would
        go back to a state that they have left.
        """
        table = self._table
        outdated = [pod for pod in pods if not _is_up_to_date(pod, table.find(pod.uid, pod.pool))]
        if not outdated:
            return ()
        unanswered = self._unknown.look_up(outdated)
        return {p.uid for p in outdated if p.uid in unanswered and table.find(p.uid, p.pool)}

    def _store(self, cache: dict[bytes, _Cached], digest: bytes, cached: _Cached) -> None:
        limit = MAX_RESPONSES if cache is self._responses else MAX_LARGE_RESPONSES
        with self._lock:
            cache[digest] = cached
            while len(cache) > limit:
                del cache[next(iter(cache))]

    def _preliminary(self, pod: RequestedPod, entry: Optional[Entry]) -> bytes:
        """Return the preliminary status if one is due, once for each entry; else nothing."""
        if not pod.inits or entry is None or self._preliminary_sent.get(pod.uid) is entry:
            return b""
        first = preliminary_status(pod, entry.status)
        if first is None:
            return b""
        with self._lock:
            self._preliminary_sent[pod.uid] = entry
            while len(self._preliminary_sent) > MAX_PRELIMINARIES:
                del self._preliminary_sent[next(iter(self._preliminary_sent))]
        return _dump(first)

    def _element(self, pod: RequestedPod, entry: Optional[Entry]) -> bytes:
        """Return the status of a pod; nothing if it is unknown and not lost."""
        if not pod.mains:
            return b""
        if entry is None:
            lost = self._unknown.status(pod)
            return _dump(lost) if lost is not None else b""
        return _dump(pod_status(pod, entry.status))


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=16).digest()


def _is_up_to_date(pod: RequestedPod, entry: Optional[Entry]) -> bool:
    """Return whether a pod is known, and no container waits that was reported as begun.

    Another worker may have received more, or this one before a restart.
    """
    if entry is None:
        return False
    status = entry.status
    if not pod.reported or status.phase == ENDED:
        return True
    begun = {name for name, reported in pod.reported if reported.state in (RUNNING, TERMINATED)}
    states = [container.state for container in status.containers]
    return not any(
        state.state == WAITING and not state.restarts and state.name in begun for state in states
    )


def _dump(element: dict[str, Any]) -> bytes:
    return json.dumps(element, separators=(",", ":")).encode()
