"""Runs pods as pods of another Kubernetes cluster, which the site has.

A job comes as manifests (``templates/manifests/objects.py``). Its pod is made first, held back by
a scheduling gate of ours, then the ConfigMaps and Secrets that belong to it, then the gate goes: so
whatever is made belongs to the pod and goes with it, wherever we are killed. What a pod says
becomes records in the pool's spool, as a job's script would have written them.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional

from submitter.backends.base import Backend, JobRef, Observation
from submitter.backends.kubernetes import capacity as kubernetes_capacity
from submitter.backends.kubernetes import options as kubernetes_options
from submitter.backends.kubernetes import states as kubernetes_states
from submitter.backends.kubernetes.client import Api, ApiRefused
from submitter.backends.kubernetes.logs import PodLogs
from submitter.backends.kubernetes.pods import Pods
from submitter.common.errors import (
    BackendUnavailable,
    Forbidden,
    NoRoom,
    SubmitRefused,
    SubmitUnclear,
)
from submitter.common.nats_request import AskNats, not_connected
from submitter.config.settings import Pool
from submitter.store.journal import read
from templates.common.constants import SITE_DIRECTORY_LABEL, SITE_POOL_LABEL
from templates.job.model import MANIFESTS, Job
from templates.kube_api.client import Json
from templates.site.build_config import KUBERNETES

logger = logging.getLogger(__name__)

GATE = "interlink-nats/objects"  # holds a pod back until what belongs to it is there
PLURALS = {"ConfigMap": "configmaps", "Secret": "secrets"}
CONFLICT = 409
PATIENCE_S = 60.0  # for the logs of a pod that has ended


class KubernetesBackend(Backend):
    """One namespace of one cluster."""

    settle_s = 2.0
    visible_after_s = 30.0  # a request that was given up here may still arrive there
    lost_after_s = 10.0
    fetches_logs = True

    def __init__(self, pool: Pool, ask: AskNats = not_connected) -> None:
        super().__init__(pool, ask)
        self._options = kubernetes_options.load(pool)
        where = f"pool {pool.name}: options"
        self._api = Api(self._options.kubeconfig, self._options.namespace, where)
        self._logs = PodLogs(self._api)
        self._lock = threading.Lock()
        self._said: dict[tuple[str, str], str] = {}  # the last record of each stream
        self._gone: dict[str, Observation] = {}
        self._silent: dict[str, float] = {}  # since when the logs of one that has ended fail
        self._made: Optional[Pods] = None

    @classmethod
    def needs_shared_directory(cls, pool: Pool) -> bool:
        return False

    @property
    def _pods(self) -> Pods:
        """Known by the pool's directory: another one has nothing to do with what is there."""
        with self._lock:
            if self._made is None:
                selector = f"{SITE_DIRECTORY_LABEL}={self._directory_id()}"
                self._made = Pods(self._api, selector, self._hear)
            return self._made

    def _directory_id(self) -> str:
        path = f"{self.pool.directory}/cluster-id"
        known = read(path)
        if known is None:
            draft = f"{path}.{uuid.uuid4().hex}"
            with open(draft, "w", encoding="ascii") as file:
                file.write(uuid.uuid4().hex)
            with contextlib.suppress(FileExistsError):  # another submitter was quicker
                os.link(draft, path)
            os.unlink(draft)
            known = read(path)
        return (known or b"").decode(errors="replace").strip()

    def _job_directory(self, name: str) -> str:
        return f"{self.pool.directory}/jobs/{name}"

    # --- making ---------------------------------------------------------------------------------

    def check(self, job: Job) -> None:
        if job.runtime != KUBERNETES:
            raise Forbidden(f"it was built for runtime {job.runtime}, and this pool is a cluster")

    def submit(self, job: Job, directory: str) -> str:
        made = _manifests(directory)
        if made is None:
            raise SubmitRefused("its manifests cannot be read")
        pod, objects = self._ours(made, job.name)
        try:
            there = self._create(pod)
            self._pods.note(there)
            self._complete(there, objects)
        except ApiRefused as refused:
            self._take_back(job.name)
            raise SubmitRefused(str(refused)) from None
        except BackendUnavailable as error:
            raise SubmitUnclear(str(error)) from None
        return self._native(job.name)

    def _native(self, name: str) -> str:
        return f"{self._options.namespace}/{name}"

    def _ours(self, made: Json, name: str) -> tuple[Json, list[Json]]:
        """The pod in this pool's place; what is not one of the kinds that we make is left out."""
        pod = made["pod"]
        metadata = pod["metadata"]
        labels = {
            **metadata.get("labels", {}),
            SITE_POOL_LABEL: _label(self.pool.name),
            SITE_DIRECTORY_LABEL: self._directory_id(),
        }
        pod["metadata"] = {
            "name": name,
            "labels": labels,
            "annotations": metadata.get("annotations", {}),
        }
        objects = [one for one in made["objects"] if one["kind"] in PLURALS]
        if objects:
            pod["spec"]["schedulingGates"] = [{"name": GATE}]
        return pod, objects

    def _create(self, pod: Json) -> Json:
        name = pod["metadata"]["name"]
        try:
            return self._api.create("pods", pod)
        except ApiRefused as refused:
            if "exceeded quota" in str(refused):
                raise NoRoom(str(refused)) from None
            there = self._api.get("pods", name) if refused.status == CONFLICT else None
            if there is None:
                raise
            return there

    def _complete(self, there: Json, objects: Iterable[Json]) -> None:
        """Make what belongs to a pod, and let it go."""
        gates = [gate["name"] for gate in there["spec"].get("schedulingGates") or ()]
        if GATE not in gates:
            return
        name, uid = there["metadata"]["name"], there["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
        for one in objects:
            one["metadata"] = {"name": one["metadata"]["name"], "ownerReferences": [owner]}
            try:
                self._api.create(PLURALS[one["kind"]], one)
            except ApiRefused as refused:
                if refused.status != CONFLICT:
                    raise
        change = {"spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}]}}
        self._api.patch("pods", name, change)

    def _take_back(self, name: str) -> None:
        """A pod that cannot have what belongs to it."""
        try:
            self._api.delete("pods", name, 0)
        except (ApiRefused, BackendUnavailable) as error:
            logger.warning("pool=%s job=%s: it stays: %s", self.pool.name, name, error)

    def find(self, names: Sequence[str]) -> dict[str, str]:
        found = {}
        for name in names:
            try:
                there = self._api.get("pods", name)
                if there is None:
                    continue
                made = _manifests(self._job_directory(name)) or {"objects": []}
                self._complete(there, [o for o in made["objects"] if o["kind"] in PLURALS])
            except ApiRefused as refused:
                raise BackendUnavailable(str(refused)) from None
            found[name] = self._native(name)
        return found

    # --- looking --------------------------------------------------------------------------------

    def poll(self, refs: Sequence[JobRef]) -> Mapping[str, Observation]:
        known = self._pods.known()
        found = {}
        for ref in refs:
            pod = known.get(ref.name)
            if pod is not None:
                found[ref.name] = kubernetes_states.observation(pod)
            elif ref.name in self._gone:
                found[ref.name] = self._gone[ref.name]
        return found

    def _hear(self, pod: Json, gone: bool) -> None:
        """Called in the thread that watches: what is new of a pod becomes records."""
        name = pod["metadata"]["name"]
        if gone and os.path.isdir(self._job_directory(name)):
            self._gone[name] = kubernetes_states.deleted(pod)
        try:
            self._record(name, pod)
        except OSError as error:
            logger.warning("job=%s: what it says is not written: %s", name, error.strerror)

    def _record(self, name: str, pod: Json) -> None:
        directory = self._job_directory(name)
        if not os.path.isdir(directory):
            return
        run = kubernetes_states.run_of(pod)
        for line in kubernetes_states.lines(pod):
            if self._said.get((name, line.stream)) == line.values:
                continue
            at = int(time.time() * 1000)
            text = f"interlink1 job={name} run={run} stream={line.stream} n={line.number} at={at}"
            whole = f"{text} {line.values} ;\n".encode()
            with open(f"{directory}/records", "ab") as records:
                records.write(whole)
            target = f"{self.pool.directory}/spool/{name}.{run}.{line.stream}.{line.number}"
            with open(f"{target}.tmp", "wb") as dropped:
                dropped.write(whole)
            os.rename(f"{target}.tmp", target)
            self._said[name, line.stream] = line.values

    def fetch_logs(self, name: str, container: str) -> bool:
        pod = self._pods.known().get(name) or {}
        told = kubernetes_states.containers(pod)
        return all(self._bring(name, one, now=False) for one in told if one["name"] == container)

    def _bring(self, name: str, told: Mapping[str, Any], *, now: bool) -> bool:
        """Whether all is here that it has written; False when that cannot be told."""
        start = int(told.get("restartCount") or 0)
        directory = self._job_directory(name)
        brought = self._logs.bring(name, directory, told["name"], start, now=now)
        return brought or not kubernetes_states.has_begun(told)

    # --- ending ---------------------------------------------------------------------------------

    def cancel(self, refs: Sequence[JobRef], kill: bool) -> None:
        for ref in refs:
            self._delete(ref.name, 0 if kill else None)

    def clean(self, refs: Sequence[JobRef]) -> set[str]:
        """What a pod has logged is brought here before it goes, with all that belongs to it."""
        known = self._pods.known()
        clean = set()
        for ref in refs:
            pod = known.get(ref.name)
            if pod is not None:
                if not self._has_last_words(ref.name, pod):
                    continue
                self._delete(ref.name, None)
            self._forget(ref)
            clean.add(ref.name)
        return clean

    def _has_last_words(self, name: str, pod: Json) -> bool:
        """Whether its logs are here; a node that does not tell is not waited for for ever."""
        words = "its node does not know it"
        try:
            # All of them are asked for, also when one is not told.
            told = kubernetes_states.containers(pod)
            brought = [self._bring(name, one, now=True) for one in told]
            if all(brought):
                return True
        except BackendUnavailable as error:
            words = str(error)
        since = self._silent.setdefault(name, time.monotonic())
        if time.monotonic() - since < PATIENCE_S:
            return False
        logger.warning("pool=%s job=%s: its log is lost: %s", self.pool.name, name, words)
        return True

    def _forget(self, ref: JobRef) -> None:
        self._silent.pop(ref.name, None)
        self._logs.forget(ref.directory)
        self._gone.pop(ref.name, None)
        for key in [key for key in self._said if key[0] == ref.name]:
            self._said.pop(key, None)

    def _delete(self, name: str, grace_s: Optional[int]) -> None:
        try:
            self._api.delete("pods", name, grace_s)
        except ApiRefused as refused:
            raise BackendUnavailable(str(refused)) from None

    def tidy(self) -> None:
        for name in self._pods.known():
            if not os.path.isdir(self._job_directory(name)):
                self._delete(name, None)

    def capacity(self) -> dict[str, str]:
        try:
            return kubernetes_capacity.capacity(self._api, self._options, self.pool.resources)
        except ApiRefused as refused:
            raise BackendUnavailable(str(refused)) from None


def _manifests(directory: str) -> Optional[Json]:
    """What came for the far cluster; None when it is gone, as it is when a job has ended."""
    try:
        found: Json = json.loads(read(f"{directory}/{MANIFESTS}") or b"")
    except ValueError:
        return None
    return found


def _label(pool: str) -> str:
    """A pool's name as the value of a label, which must begin and end with a letter or digit."""
    return pool.strip("-_")
