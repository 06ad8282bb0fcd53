"""The Kubernetes backend: jobs are pods of the site's own cluster.

A job comes as manifests (``templates/manifests/objects.py``). Its pod is created first, held back
by a scheduling gate of ours, then the ConfigMaps and Secrets that belong to it, then the gate is
removed: so whatever exists is owned by the pod and is deleted with it, wherever we are killed. The
pod's status becomes records in the pool's spool, as a job's script would have written them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional

from submitter.backends.base import Backend, JobRef, Observation
from submitter.backends.kubernetes import states
from submitter.backends.kubernetes.capacity import read_capacity
from submitter.backends.kubernetes.client import Api, ApiRefused
from submitter.backends.kubernetes.logs import PodLogs
from submitter.backends.kubernetes.options import load
from submitter.backends.kubernetes.pods import PodCache
from submitter.common.errors import (
    BackendUnavailable,
    Forbidden,
    NoRoom,
    SubmitRefused,
    SubmitUnclear,
)
from submitter.common.guarded_files import load_object, read
from submitter.common.nats_request import AskNats, not_connected
from submitter.config.settings import Pool
from templates.common.constants import SITE_DIRECTORY_LABEL, SITE_POOL_LABEL
from templates.job.model import MANIFESTS, Job
from templates.kube_api.client import Json
from templates.nats import codec
from templates.site.build_config import KUBERNETES

logger = logging.getLogger(__name__)

GATE = "interlink-nats/objects"  # holds a pod back until its objects exist
PLURALS = {"ConfigMap": "configmaps", "Secret": "secrets"}
CONFLICT = 409
LOG_TIMEOUT_S = 60.0  # for the logs of a pod that has ended


class KubernetesBackend(Backend):
    """One namespace of one cluster."""

    settle_s = 2.0
    visible_after_s = 30.0  # a request that timed out may still arrive
    lost_after_s = 10.0
    fetches_logs = True

    def __init__(self, pool: Pool, ask: AskNats = not_connected) -> None:
        super().__init__(pool, ask)
        self._options = load(pool)
        field = f"pool {pool.name}: options"
        self._api = Api(self._options.kubeconfig, self._options.namespace, field)
        self._logs = PodLogs(self._api)
        self._lock = threading.Lock()
        self._last_records: dict[tuple[str, str], str] = {}  # the last record of each stream
        self._deleted: dict[str, Observation] = {}
        self._log_errors: dict[str, float] = {}  # ended jobs: since when their logs fail
        self._pod_cache: Optional[PodCache] = None

    @classmethod
    def needs_shared_directory(cls, pool: Pool) -> bool:
        return False

    @property
    def _pods(self) -> PodCache:
        """Return the cache of this pool's pods, which a label of its directory selects."""
        with self._lock:
            if self._pod_cache is None:
                selector = f"{SITE_DIRECTORY_LABEL}={self._directory_id()}"
                self._pod_cache = PodCache(self._api, selector, self._on_pod)
            return self._pod_cache

    def _directory_id(self) -> str:
        path = f"{self.pool.directory}/cluster-id"
        content = read(path)
        if content is None:
            draft = f"{path}.{uuid.uuid4().hex}"
            with open(draft, "w", encoding="ascii") as file:
                file.write(uuid.uuid4().hex)
            with contextlib.suppress(FileExistsError):  # another submitter was quicker
                os.link(draft, path)
            os.unlink(draft)
            content = read(path)
        return (content or b"").decode(errors="replace").strip()

    def _job_directory(self, name: str) -> str:
        return f"{self.pool.directory}/jobs/{name}"

    # --- submitting -----------------------------------------------------------------------------

    def check(self, job: Job) -> None:
        if job.runtime != KUBERNETES:
            raise Forbidden(f"it was built for runtime {job.runtime}, and this pool is a cluster")

    def submit(self, job: Job, directory: str) -> str:
        manifests = _read_manifests(directory)
        if manifests is None:
            raise SubmitRefused("its manifests cannot be read")
        pod, objects = self._prepare(manifests, job.name)
        try:
            created = self._create(pod)
            self._pods.add(created)
            self._create_objects(created, objects)
        except ApiRefused as refused:
            self._delete_rejected(job.name)
            raise SubmitRefused(str(refused)) from None
        except BackendUnavailable as error:
            raise SubmitUnclear(str(error)) from None
        return self._native_of(job.name)

    def _native_of(self, name: str) -> str:
        return f"{self._options.namespace}/{name}"

    def _prepare(self, manifests: Json, name: str) -> tuple[Json, list[Json]]:
        """Return the pod with this pool's metadata, and the objects of the allowed kinds."""
        pod = manifests["pod"]
        metadata = pod["metadata"]
        labels = {
            **metadata.get("labels", {}),
            SITE_POOL_LABEL: _to_label(self.pool.name),
            SITE_DIRECTORY_LABEL: self._directory_id(),
        }
        pod["metadata"] = {
            "name": name,
            "labels": labels,
            "annotations": metadata.get("annotations", {}),
        }
        objects = [one for one in manifests["objects"] if one["kind"] in PLURALS]
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
            existing = self._api.get("pods", name) if refused.status == CONFLICT else None
            if existing is None:
                raise
            return existing

    def _create_objects(self, pod: Json, objects: Iterable[Json]) -> None:
        """Create the objects of a pod, and remove its gate."""
        gates = [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()]
        if GATE not in gates:
            return
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
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

    def _delete_rejected(self, name: str) -> None:
        """Delete a pod that cannot have its objects."""
        try:
            self._api.delete("pods", name, 0)
        except (ApiRefused, BackendUnavailable) as error:
            logger.warning("pool=%s job=%s: it stays: %s", self.pool.name, name, error)

    def find(self, names: Sequence[str]) -> dict[str, str]:
        found = {}
        for name in names:
            try:
                pod = self._api.get("pods", name)
                if pod is None:
                    continue
                manifests = _read_manifests(self._job_directory(name)) or {"objects": []}
                objects = [one for one in manifests["objects"] if one["kind"] in PLURALS]
                self._create_objects(pod, objects)
            except ApiRefused as refused:
                raise BackendUnavailable(str(refused)) from None
            found[name] = self._native_of(name)
        return found

    # --- polling --------------------------------------------------------------------------------

    def poll(self, refs: Sequence[JobRef]) -> Mapping[str, Observation]:
        pods = self._pods.snapshot()
        found = {}
        for ref in refs:
            pod = pods.get(ref.name)
            if pod is not None:
                found[ref.name] = states.observe(pod)
            elif ref.name in self._deleted:
                found[ref.name] = self._deleted[ref.name]
        return found

    def _on_pod(self, pod: Json, gone: bool) -> None:
        """Write records of what has changed in a pod; called in the thread that watches."""
        name = pod["metadata"]["name"]
        if gone and os.path.isdir(self._job_directory(name)):
            self._deleted[name] = states.observe_deleted(pod)
        try:
            self._write_records(name, pod)
        except OSError as error:
            logger.warning("job=%s: what it says is not written: %s", name, error.strerror)

    def _write_records(self, name: str, pod: Json) -> None:
        directory = self._job_directory(name)
        if not os.path.isdir(directory):
            return
        run = states.read_run(pod)
        for line in states.read_records(pod):
            if self._last_records.get((name, line.stream)) == line.values:
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
            self._last_records[name, line.stream] = line.values

    def fetch_logs(self, name: str, container: str) -> bool:
        pod = self._pods.snapshot().get(name) or {}
        statuses = [one for one in states.read_containers(pod) if one["name"] == container]
        return all(self._fetch_log(name, one, now=False) for one in statuses)

    def _fetch_log(self, name: str, status: Mapping[str, Any], *, now: bool) -> bool:
        """Fetch the log of a container; return whether it is complete."""
        start = int(status.get("restartCount") or 0)
        directory = self._job_directory(name)
        fetched = self._logs.fetch(name, directory, status["name"], start, now=now)
        return fetched or not states.has_begun(status)

    # --- ending ---------------------------------------------------------------------------------

    def cancel(self, refs: Sequence[JobRef], kill: bool) -> None:
        for ref in refs:
            self._delete(ref.name, 0 if kill else None)

    def clean(self, refs: Sequence[JobRef]) -> set[str]:
        """Delete the pods, with their objects, whose logs are complete."""
        pods = self._pods.snapshot()
        clean = set()
        for ref in refs:
            pod = pods.get(ref.name)
            if pod is not None:
                if not self._has_all_logs(ref.name, pod):
                    continue
                self._delete(ref.name, None)
            self._forget(ref)
            clean.add(ref.name)
        return clean

    def _has_all_logs(self, name: str, pod: Json) -> bool:
        """Return whether all logs are complete, or their node has not responded for too long."""
        message = "its node does not know it"
        try:
            # Fetch all of them, even if one is not complete.
            statuses = states.read_containers(pod)
            fetched = [self._fetch_log(name, one, now=True) for one in statuses]
            if all(fetched):
                return True
        except BackendUnavailable as error:
            message = str(error)
        since = self._log_errors.setdefault(name, time.monotonic())
        if time.monotonic() - since < LOG_TIMEOUT_S:
            return False
        logger.warning("pool=%s job=%s: its log is lost: %s", self.pool.name, name, message)
        return True

    def _forget(self, ref: JobRef) -> None:
        self._log_errors.pop(ref.name, None)
        self._logs.forget(ref.directory)
        self._deleted.pop(ref.name, None)
        for key in [key for key in self._last_records if key[0] == ref.name]:
            self._last_records.pop(key, None)

    def _delete(self, name: str, grace_s: Optional[int]) -> None:
        try:
            self._api.delete("pods", name, grace_s)
        except ApiRefused as refused:
            raise BackendUnavailable(str(refused)) from None

    def tidy(self) -> None:
        for name in self._pods.snapshot():
            if not os.path.isdir(self._job_directory(name)):
                self._delete(name, None)

    def capacity(self) -> dict[str, str]:
        try:
            return read_capacity(self._api, self._options, self.pool.resources)
        except ApiRefused as refused:
            raise BackendUnavailable(str(refused)) from None


def _read_manifests(directory: str) -> Optional[Json]:
    """Return the manifests of a job; None if they are gone, as they are when it has ended."""
    try:
        found: Json = load_object(read(f"{directory}/{MANIFESTS}", codec.LARGEST) or b"")
    except ValueError:
        return None
    return found


def _to_label(pool: str) -> str:
    """Return a pool's name as a label value, which must begin and end with a letter or digit."""
    return pool.strip("-_")
