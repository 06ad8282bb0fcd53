"""Handover of jobs from the threads of requests to the loop.

Waking the loop costs more than the rest of a handover: submits that arrive while it is being woken
are taken by the same call.
"""

from __future__ import annotations

import threading
from typing import Optional

from plugin_server.common.errors import Refused
from plugin_server.nats.bridge import Bridge, BridgeError
from plugin_server.nats.outbox import PendingSubmit, Sender, refusal_when_stopping
from plugin_server.state.pending_deletes import Deletions
from templates.job.model import Job

GRACE_S = 5.0  # beyond a submit's timeout, for the loop to set the result


class Handover:
    """Handover to the sender; called by any number of threads."""

    def __init__(self, bridge: Bridge, sender: Sender, deletions: Deletions) -> None:
        self._bridge = bridge
        self._sender = sender
        self._deletions = deletions
        self._submits: list[PendingSubmit] = []  # not taken by the loop yet
        self._lock = threading.Lock()

    def send(self, pool: str, job: Job, timeout_s: float) -> Optional[Refused]:
        """Submit a job and wait; return None once it is journaled at its site, or the rejection.

        A site that has not replied may have accepted the job: it is deleted there.
        """
        submit = PendingSubmit(pool, job, timeout_s)
        self._put(submit)
        try:
            refused = submit.wait(timeout_s + GRACE_S)
        except BridgeError:
            self._deletions.add(pool, job.name, None)
            raise
        if refused is not None and submit.maybe_accepted:
            self._deletions.add(pool, job.name, None)
        return refused

    def _put(self, submit: PendingSubmit) -> None:
        with self._lock:
            self._submits.append(submit)
            is_first = len(self._submits) == 1
        if is_first and not self._bridge.call_soon(self._deliver):
            for rejected in self._take():
                rejected.finish(refusal_when_stopping(rejected))

    def _deliver(self) -> None:
        """Give the waiting submits to the sender; in the loop's thread."""
        self._sender.add(self._take())

    def _take(self) -> list[PendingSubmit]:
        with self._lock:
            submits, self._submits = self._submits, []
        return submits
