"""Where a request's thread hands a job over to the loop, and waits for what becomes of it.

Waking the loop costs more than the rest of a hand-over: what threads bring while it is being woken
is taken by the same call.
"""

from __future__ import annotations

import threading
from typing import Optional

from plugin_server.common.errors import Refused
from plugin_server.nats.bridge import Bridge, BridgeError
from plugin_server.nats.outbox import Parcel, Sender
from plugin_server.state.pending_deletes import Deletions
from templates.job.model import Job

LAST_WORD_S = 5.0  # beyond a request's own time, for the loop to say that it is over


class Handover:
    """Called by any number of threads."""

    def __init__(self, bridge: Bridge, sender: Sender, deletions: Deletions) -> None:
        self._bridge = bridge
        self._sender = sender
        self._deletions = deletions
        self._parcels: list[Parcel] = []  # that the loop has not taken yet
        self._lock = threading.Lock()

    def send(self, pool: str, job: Job, timeout_s: float) -> Optional[Refused]:
        """Return None when the job is journaled at its site; else why it is not, nor will be.

        A site that was asked and has not answered may have taken the job: it is deleted there.
        """
        parcel = Parcel(pool, job, timeout_s)
        self._put(parcel)
        try:
            refused = parcel.wait(timeout_s + LAST_WORD_S)
        except BridgeError:
            self._deletions.add(pool, job.name, None)
            raise
        if refused is not None and parcel.perhaps:
            self._deletions.add(pool, job.name, None)
        return refused

    def _put(self, parcel: Parcel) -> None:
        with self._lock:
            self._parcels.append(parcel)
            is_first = len(self._parcels) == 1
        if is_first and not self._bridge.soon(self._take):
            raise BridgeError("the loop is not running")

    def _take(self) -> None:
        """Take all that wait; in the loop's thread."""
        with self._lock:
            parcels, self._parcels = self._parcels, []
        self._sender.take(parcels)
