"""Delete requests: from a pod to a pending delete of its job."""

from __future__ import annotations

import logging
from typing import Any

from plugin_server.interlink import requests
from plugin_server.state.job_table import JobTable
from plugin_server.state.pending_deletes import Deletions
from plugin_server.state.rejections import Rejections
from templates.common.names import job_name

logger = logging.getLogger(__name__)


class Deletes:
    """Delete requests; called by any number of threads."""

    def __init__(
        self, default_pool: str, table: JobTable, deletions: Deletions, rejections: Rejections
    ) -> None:
        self._default_pool = default_pool
        self._table = table
        self._deletions = deletions
        self._rejections = rejections

    def delete(self, body: bytes) -> None:
        """Add a pending delete of a pod's job; raises ``Malformed``."""
        raw: Any = requests.decode(body)
        if type(raw) is list and len(raw) == 1:
            raw = raw[0]
        pod = requests.read_pod(raw)
        job = job_name(pod.name, pod.uid)
        entry = self._table.find(pod.uid, pod.pool)
        pool = entry.pool if entry is not None else pod.pool or self._table.pool_of(pod.uid)
        pool = pool or self._default_pool
        if not pool:
            self._deletions.mark_deleted(pod.uid)
            logger.warning("%s: deleted, but no pool is known to have it", job, extra={"job": job})
        else:
            self._deletions.add(pool, job, requests.grace_period(raw))
        self._rejections.remove(pod.uid)
