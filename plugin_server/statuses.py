"""What ``/status`` does: answers from memory, as bytes that are made once per change.

The virtual kubelet asks for one pod per call, again and again with the same bytes until something
changes: an answer is found again by the digest of the question.
"""

from __future__ import annotations

import hashlib
import json
import threading
from typing import Any, NamedTuple, Optional

from plugin_server import asked as asking
from plugin_server import ping
from plugin_server.asked import Asked
from plugin_server.errors import Malformed
from plugin_server.pools import Pools
from plugin_server.states_table import Entry, StatesTable
from plugin_server.status import pod_status
from plugin_server.unknown_pods import UnknownPods

LONGEST_KEPT = 64 * 1024  # of a question whose answer is found by its digest
KEPT_ANSWERS = 16384


class _Kept(NamedTuple):
    """An answer, true for as long as the entry stands in the table."""

    entry: Entry
    uid: str
    pool: str
    answer: bytes


class Statuses:
    """Answers to status requests; called by any number of threads."""

    def __init__(self, pools: Pools, table: StatesTable, unknown: UnknownPods) -> None:
        self._pools = pools
        self._table = table
        self._unknown = unknown
        self._answers: dict[bytes, _Kept] = {}  # by the digest of the question
        self._lock = threading.Lock()

    def answer(self, body: bytes) -> bytes:
        """The answer to a status request; raises ``Malformed``."""
        if len(body) > LONGEST_KEPT:
            return self._answer(asking.decode(body), b"")
        digest = hashlib.blake2b(body, digest_size=16).digest()
        kept = self._answers.get(digest)
        if kept is not None and self._table.find(kept.uid, kept.pool) is kept.entry:
            return kept.answer
        return self._answer(asking.decode(body), digest)

    def _answer(self, raw: Any, digest: bytes) -> bytes:
        if type(raw) is not list:
            raise Malformed("the request must be a list of pods")
        if not raw:
            return ping.answer(self._pools)
        pods = [asking.read(pod, f"pod {number}") for number, pod in enumerate(raw)]
        found = [self._table.find(pod.uid, pod.pool) for pod in pods]
        unknown = [pod for pod, entry in zip(pods, found) if entry is None]
        if unknown:
            self._unknown.look_up(unknown)
        answers = [self._of_pod(pod, entry) for pod, entry in zip(pods, found)]
        answer = b"[" + b",".join(filter(None, answers)) + b"]"
        if len(pods) == 1 and digest and found[0] is not None:
            self._keep(digest, _Kept(found[0], pods[0].uid, pods[0].pool, answer))
        return answer

    def _keep(self, digest: bytes, kept: _Kept) -> None:
        with self._lock:
            self._answers[digest] = kept
            while len(self._answers) > KEPT_ANSWERS:
                del self._answers[next(iter(self._answers))]

    def _of_pod(self, pod: Asked, entry: Optional[Entry]) -> bytes:
        """The element for one pod; nothing when there is nothing to say."""
        if not pod.mains:
            return b""
        entry = entry or self._table.find(pod.uid, pod.pool)
        if entry is None:
            lost = self._unknown.status(pod)
            return _dump(lost) if lost is not None else b""
        if pod.pool:
            self._table.settle(pod.uid, pod.pool)
        said = entry.said
        if said is None or said[0] != pod:
            said = entry.said = (pod, _dump(pod_status(pod, entry.status)))
        return said[1]


def _dump(element: dict[str, Any]) -> bytes:
    return json.dumps(element, separators=(",", ":")).encode()
