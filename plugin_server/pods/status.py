"""What ``/status`` does: answers from memory, as bytes that are made once per change.

The virtual kubelet asks for one pod per call, again and again with the same bytes until something
changes: an answer is found again by the digest of the question.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Collection
from typing import Any, NamedTuple, Optional

from plugin_server.common.errors import Malformed
from plugin_server.interlink import requests as asking
from plugin_server.interlink.requests import Asked
from plugin_server.interlink.responses import introduction, pod_status
from plugin_server.pods import ping
from plugin_server.pods.missing_jobs import UnknownPods
from plugin_server.state.job_table import Entry, StatesTable
from plugin_server.state.pools import Pools
from templates.job.records import RUNNING, TERMINATED, WAITING
from templates.job.status import ENDED

PING = b"[]"
LONGEST_ONE = 64 * 1024  # bytes of a question about one pod, or a few
KEPT_ANSWERS = 16384
KEPT_LARGE_ANSWERS = 8
KEPT_INTRODUCTIONS = 10_000


class _Kept(NamedTuple):
    """An answer, true for as long as its entries stand in the table."""

    pods: list[tuple[str, str, Entry]]  # uid, the pool that it names, and what is known of it
    answer: bytes


class Statuses:
    """Answers to status requests; called by any number of threads."""

    def __init__(self, pools: Pools, table: StatesTable, unknown: UnknownPods) -> None:
        self._pools = pools
        self._table = table
        self._unknown = unknown
        self._answers: dict[bytes, _Kept] = {}  # by the digest of the question
        self._large_answers: dict[bytes, _Kept] = {}
        self._introduced: dict[str, Entry] = {}  # uid -> the state that was introduced
        self._lock = threading.Lock()

    def known(self, body: bytes) -> Optional[bytes]:
        """The answer, if it can be given at once: the ping's, or one that was given before."""
        if body == PING:
            return ping.answer(self._pools)
        kept = self._kept(body).get(_digest(body))
        find = self._table.find
        if kept is not None and all(find(uid, pool) is entry for uid, pool, entry in kept.pods):
            return kept.answer
        return None

    def answer(self, body: bytes) -> bytes:
        """The answer, after a look at sites if need be; raises ``Malformed``."""
        kept = self._answer(asking.decode(body))
        if kept.pods:
            self._keep(self._kept(body), _digest(body), kept)
        return kept.answer

    def _kept(self, body: bytes) -> dict[bytes, _Kept]:
        return self._answers if len(body) <= LONGEST_ONE else self._large_answers

    def _answer(self, raw: Any) -> _Kept:
        """The answer; without pods when it must not be given again."""
        if type(raw) is not list:
            raise Malformed("the request must be a list of pods")
        if not raw:
            return _Kept([], ping.answer(self._pools))
        pods = [asking.read(pod, f"pod {number}") for number, pod in enumerate(raw)]
        silent = self._look_up(pods)
        found = [(p, self._table.find(p.uid, p.pool)) for p in pods if p.uid not in silent]
        known, elements = [], []
        for pod, entry in found:
            first = self._introduction(pod, entry)
            elements.append(first or self._of_pod(pod, entry))
            if entry is not None and pod.mains and not first:
                known.append((pod.uid, pod.pool, entry))
        answer = b"[" + b",".join(filter(None, elements)) + b"]"
        return _Kept(known if len(known) == len(raw) else [], answer)

    def _look_up(self, pods: list[Asked]) -> Collection[str]:
        """Ask for what is not known, or not as well as it was when the virtual kubelet heard of it.

        The uids of those of which nothing can be said: their site does not answer now, and they
        would go back to a state that they have left.
        """
        table = self._table
        doubtful = [pod for pod in pods if not _is_known(pod, table.find(pod.uid, pod.pool))]
        if not doubtful:
            return ()
        silent = self._unknown.look_up(doubtful)
        return {p.uid for p in doubtful if p.uid in silent and table.find(p.uid, p.pool)}

    def _keep(self, answers: dict[bytes, _Kept], digest: bytes, kept: _Kept) -> None:
        most = KEPT_ANSWERS if answers is self._answers else KEPT_LARGE_ANSWERS
        with self._lock:
            answers[digest] = kept
            while len(answers) > most:
                del answers[next(iter(answers))]

    def _introduction(self, pod: Asked, entry: Optional[Entry]) -> bytes:
        """The element that comes first, once for each state, whatever is made of it."""
        if not pod.inits or entry is None or self._introduced.get(pod.uid) is entry:
            return b""
        first = introduction(pod, entry.status)
        if first is None:
            return b""
        with self._lock:
            self._introduced[pod.uid] = entry
            while len(self._introduced) > KEPT_INTRODUCTIONS:
                del self._introduced[next(iter(self._introduced))]
        return _dump(first)

    def _of_pod(self, pod: Asked, entry: Optional[Entry]) -> bytes:
        """The element for one pod; nothing when there is nothing to say."""
        if not pod.mains:
            return b""
        if entry is None:
            lost = self._unknown.status(pod)
            return _dump(lost) if lost is not None else b""
        if pod.pool:
            self._table.settle(pod.uid, pod.pool)
        return _dump(pod_status(pod, entry.status))


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=16).digest()


def _is_known(pod: Asked, entry: Optional[Entry]) -> bool:
    """Whether it is known, and no container waits for its first start that was shown as begun.

    Another worker may have heard more, or this one before it was started anew.
    """
    if entry is None:
        return False
    status = entry.status
    if not pod.shown or status.phase == ENDED:
        return True
    begun = {name for name, shown in pod.shown if shown.state in (RUNNING, TERMINATED)}
    states = [container.state for container in status.containers]
    return not any(
        state.state == WAITING and not state.restarts and state.name in begun for state in states
    )


def _dump(element: dict[str, Any]) -> bytes:
    return json.dumps(element, separators=(",", ":")).encode()
