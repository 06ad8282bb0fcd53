"""Delete requests: from interLink's pod to the promise that its job ends."""

from __future__ import annotations

import logging
from typing import Any

from plugin_server.interlink import requests as asking
from plugin_server.state.job_table import StatesTable
from plugin_server.state.pending_deletes import Deletions
from plugin_server.state.rejections import Refusals
from templates.common.names import job_name

logger = logging.getLogger(__name__)


class Deletes:
    """What ``/delete`` does; called by any number of threads."""

    def __init__(
        self, default_pool: str, table: StatesTable, deletions: Deletions, refusals: Refusals
    ) -> None:
        self._default_pool = default_pool
        self._table = table
        self._deletions = deletions
        self._refusals = refusals

    def delete(self, body: bytes) -> None:
        """Promise that a pod's job ends; raises ``Malformed``."""
        raw: Any = asking.decode(body)
        if type(raw) is list and len(raw) == 1:
            raw = raw[0]
        pod = asking.read(raw)
        job = job_name(pod.name, pod.uid)
        entry = self._table.find(pod.uid, pod.pool)
        pool = entry.pool if entry is not None else pod.pool or self._table.pool_of(pod.uid)
        pool = pool or self._default_pool
        if not pool:
            self._deletions.mark(pod.uid)
            logger.warning("%s: deleted, but no pool is known to have it", job, extra={"job": job})
        else:
            self._deletions.add(pool, job, asking.grace_period(raw))
        self._refusals.forget(pod.uid)
