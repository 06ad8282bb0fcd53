"""A cache of all pods of a pool in the site's cluster: one list, then one watch for all.

A thread of its own updates it, from the first snapshot on. After a gap it lists the pods again, and
until that succeeds there is no snapshot.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Callable, Optional

from submitter.backends.kubernetes.client import Api, ApiRefused
from submitter.common.errors import BackendUnavailable, SubmitterError
from templates.kube_api.client import Json

logger = logging.getLogger(__name__)

WATCH_S = 240
RETRY_S = 2.0  # after an error
FIRST_RESPONSE_S = 30.0
GONE = 410  # the version is too old to watch from

OnPod = Callable[[Json, bool], None]  # a pod, and whether it is gone


class PodCache:
    """The pods with one label, updated by a thread."""

    def __init__(self, api: Api, selector: str, on_pod: OnPod) -> None:
        self._api, self._selector, self._on_pod = api, selector, on_pod
        self._lock = threading.Lock()
        self._pods: dict[str, Json] = {}
        self._error: Optional[str] = "it has not answered yet"
        self._responded = threading.Event()
        self._thread: Optional[threading.Thread] = None

    def snapshot(self) -> Mapping[str, Json]:
        """Return the pods by name; raise ``BackendUnavailable`` while they may be stale."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True, name="pods")
                self._thread.start()
        self._responded.wait(FIRST_RESPONSE_S)
        with self._lock:
            if self._error is not None:
                raise BackendUnavailable(f"the cluster: {self._error}")
            return dict(self._pods)

    def add(self, pod: Json) -> None:
        """Add a pod that was just created: its event may arrive later."""
        with self._lock:
            self._pods.setdefault(pod["metadata"]["name"], pod)

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            try:
                version = self._list()
                while version:
                    version = self._watch(version)
            except SubmitterError as error:
                self._set_error(str(error))
                self._responded.set()
                time.sleep(RETRY_S)
            except Exception:  # whatever it was, a new list may do better
                logger.exception("the pods of the cluster are lost for a moment")
                self._set_error("what it says is not understood")
                time.sleep(RETRY_S)

    def _set_error(self, error: Optional[str]) -> None:
        with self._lock:
            self._error = error

    def _list(self) -> str:
        items, version = self._api.pods(self._selector)
        fresh = {item["metadata"]["name"]: _strip(item) for item in items}
        with self._lock:
            before, self._pods = self._pods, fresh
        for pod in fresh.values():
            self._on_pod(pod, False)
        for name in before.keys() - fresh.keys():
            self._on_pod(before[name], True)
        self._set_error(None)
        self._responded.set()
        return version

    def _watch(self, version: str) -> str:
        """Apply events; return the version to go on from, empty if a new list is needed."""
        try:
            for event in self._api.watch(self._selector, version, WATCH_S):
                kind, item = event.get("type"), event.get("object") or {}
                if kind == "ERROR":
                    return ""
                version = item["metadata"]["resourceVersion"]
                if kind != "BOOKMARK":
                    self._apply(_strip(item), kind == "DELETED")
        except ApiRefused as refused:
            if refused.status == GONE:
                return ""
            raise
        return version

    def _apply(self, pod: Json, gone: bool) -> None:
        name = pod["metadata"]["name"]
        self._on_pod(pod, gone)
        with self._lock:
            if gone:
                self._pods.pop(name, None)
            else:
                self._pods[name] = pod


def _strip(pod: Json) -> Json:
    """Return the fields that are used later: there may be thousands of pods."""
    metadata = {key: pod["metadata"].get(key) for key in _KEPT}
    spec = {key: (pod.get("spec") or {}).get(key) for key in ("nodeName", "schedulingGates")}
    return {"metadata": metadata, "spec": spec, "status": pod.get("status") or {}}


_KEPT = ("name", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")
