"""All pods of a pool as the site's API server last told them: one list, then one watch for all.

A thread of its own keeps them, from the first question on. After a gap it lists them again, and
while it cannot, nothing is known.
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
PAUSE_S = 2.0  # after trouble
FIRST_ANSWER_S = 30.0
GONE = 410  # the version is too old to watch from

Heard = Callable[[Json, bool], None]  # a pod, and whether it is gone


class Pods:
    """The pods with one label."""

    def __init__(self, api: Api, selector: str, heard: Heard) -> None:
        self._api, self._selector, self._heard = api, selector, heard
        self._lock = threading.Lock()
        self._pods: dict[str, Json] = {}
        self._trouble: Optional[str] = "it has not answered yet"
        self._answered = threading.Event()
        self._thread: Optional[threading.Thread] = None

    def known(self) -> Mapping[str, Json]:
        """Pods by their names; raises ``BackendUnavailable`` while they may not be up to date."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._keep, daemon=True, name="pods")
                self._thread.start()
        self._answered.wait(FIRST_ANSWER_S)
        with self._lock:
            if self._trouble is not None:
                raise BackendUnavailable(f"the cluster: {self._trouble}")
            return dict(self._pods)

    def note(self, pod: Json) -> None:
        """One that was just made: the watch may tell of it later."""
        with self._lock:
            self._pods.setdefault(pod["metadata"]["name"], pod)

    # --- the thread -----------------------------------------------------------------------------

    def _keep(self) -> None:
        while True:
            try:
                version = self._list()
                while version:
                    version = self._watch(version)
            except SubmitterError as error:
                self._say(str(error))
                self._answered.set()
                time.sleep(PAUSE_S)
            except Exception:  # whatever it was, a new list may do better
                logger.exception("the pods of the cluster are lost for a moment")
                self._say("what it says is not understood")
                time.sleep(PAUSE_S)

    def _say(self, trouble: Optional[str]) -> None:
        with self._lock:
            self._trouble = trouble

    def _list(self) -> str:
        items, version = self._api.pods(self._selector)
        fresh = {item["metadata"]["name"]: _slim(item) for item in items}
        with self._lock:
            before, self._pods = self._pods, fresh
        for pod in fresh.values():
            self._heard(pod, False)
        for name in before.keys() - fresh.keys():
            self._heard(before[name], True)
        self._say(None)
        self._answered.set()
        return version

    def _watch(self, version: str) -> str:
        """The version to go on from; empty when it has to be listed again."""
        try:
            for event in self._api.watch(self._selector, version, WATCH_S):
                kind, item = event.get("type"), event.get("object") or {}
                if kind == "ERROR":
                    return ""
                version = item["metadata"]["resourceVersion"]
                if kind != "BOOKMARK":
                    self._take(_slim(item), kind == "DELETED")
        except ApiRefused as refused:
            if refused.status == GONE:
                return ""
            raise
        return version

    def _take(self, pod: Json, gone: bool) -> None:
        name = pod["metadata"]["name"]
        self._heard(pod, gone)
        with self._lock:
            if gone:
                self._pods.pop(name, None)
            else:
                self._pods[name] = pod


def _slim(pod: Json) -> Json:
    """What is asked of it later: there may be thousands."""
    metadata = {key: pod["metadata"].get(key) for key in _KEPT}
    spec = {key: (pod.get("spec") or {}).get(key) for key in ("nodeName", "schedulingGates")}
    return {"metadata": metadata, "spec": spec, "status": pod.get("status") or {}}


_KEPT = ("name", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")
