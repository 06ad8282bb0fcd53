"""A site for tests: real submitter processes, and a centre that talks to them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any, Callable, Optional, TypeVar

from submitter.store.journal import JOURNALED, Journal
from templates.common.names import job_name
from templates.job.model import Job
from templates.job.status import ENDED, JobIdentity, JobStatus, accepted_status
from templates.nats import codec, subjects
from templates.nats.connection import Link, Request
from templates.nats.options import LinkSettings
from templates.nats.requests import Unanswered
from templates.pod.user_manifests import read_manifests
from templates.protocol import messages, publications
from templates.protocol.messages import Delete, LogEnd, LogRequest, Query, Refusal
from templates.protocol.publications import StatusUpdate
from templates.site.build_config import BuildConfig, Runtime
from templates.translation.build import build
from tests.support.nats_server import NatsServer

REPO = Path(__file__).resolve().parents[3]
POOL = "site"
Result = TypeVar("Result")
PATIENCE_S = 120.0  # for what has to come: machines may be slow


def eventually(
    what: Callable[[], Optional[Result]], seconds: float = PATIENCE_S, why: str = ""
) -> Result:
    """The first true result, looked for until the time is up."""
    end = time.monotonic() + seconds
    while True:
        found = what()
        if found:
            return found
        assert time.monotonic() < end, f"not within {seconds} s: {why or what}"
        time.sleep(0.05)


def manifest_of(
    script: str = "exit 0", name: str = "job", uid: str = "", grace: int = 3, **spec: Any
) -> str:
    """A pod with one container ``main`` that runs a bash script, unless ``spec`` says otherwise."""
    container: dict[str, Any] = {"name": "main", "image": "none", "command": ["bash", "-c", script]}
    if "resources" in spec:
        container["resources"] = spec.pop("resources")
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "tests", "uid": uid or str(uuid.uuid4())},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": grace,
            "containers": [container],
            **spec,
        },
    }
    return json.dumps(pod)


def job_of(
    script: str = "exit 0", name: str = "job", uid: str = "", grace: int = 3, **spec: Any
) -> Job:
    """The job that such a pod becomes."""
    parsed = read_manifests([("pod.json", manifest_of(script, name, uid, grace, **spec))])
    job = build(parsed, BuildConfig(runtime=Runtime(name="host")))
    assert job.name == job_name(name, job.uid)
    return job


def accepted(job: Job) -> bytes:
    """The first status of a job."""
    parts = (job.name, job.uid, job.namespace, job.pod, job.containers, job.origin)
    return publications.dump_status(accepted_status(JobIdentity(*parts)))


def placed(journal: Journal, *jobs: Job) -> None:
    """They are accepted, and each has its directory."""
    assert journal.store(jobs) == [JOURNALED] * len(jobs)
    for job in jobs:
        journal.unpack(job.name)


class Centre:
    """The other end: asks as the plugin does, and hears what sites publish."""

    def __init__(self, nats: NatsServer, pool: str = POOL) -> None:
        self.pool = pool
        self.heard: dict[str, list[JobStatus]] = {}
        self.publications: list[StatusUpdate] = []
        self.gone: list[str] = []
        self.others: list[tuple[str, dict[str, Any]]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.link = self.do(self._connection(nats.url))
        for kind in (subjects.STATUS, subjects.CONFIG, subjects.RESOURCES):
            self.link.subscribe(subjects.subject("interlink", kind, pool), self._hear)
        self.do(self.link.start())
        assert self.do(self.link.connected(20))

    async def _connection(self, url: str) -> Link:
        """Made in the loop that it belongs to."""
        return Link(LinkSettings((url,), name="test centre"), "interlink")

    def do(self, work: Coroutine[Any, Any, Result], seconds: float = 60) -> Result:
        """Run in the loop of the connection."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(seconds)

    def close(self) -> None:
        self.do(self.link.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _hear(self, request: Request) -> None:
        message = await request.message(self.pool)
        kind = subjects.parse("interlink", request.subject).kind
        if kind != subjects.STATUS:
            self.others.append((kind, message))
            return
        told = publications.read_status_update(message, self.pool)
        self.publications.append(told)
        for status in told.states:
            self.heard.setdefault(status.job, []).append(status)
        self.gone += told.gone

    # --- requests -------------------------------------------------------------------------------

    async def asking(self, kind: str, item: str, message: Any, timeout_s: float = 20) -> Any:
        where = subjects.subject("interlink", kind, self.pool, item)
        return await self.link.request(self.pool, where, message, timeout_s)

    def ask(self, kind: str, item: str, message: Any, timeout_s: float = 20) -> Any:
        return self.do(self.asking(kind, item, message, timeout_s))

    def _insist(self, kind: str, item: str, message: Any) -> Any:
        """Ask as the plugin does: a message to a submitter that was just killed is lost."""
        for _ in range(10):
            with contextlib.suppress(Unanswered):
                return self.ask(kind, item, message, 3)
        raise AssertionError(f"nobody answers {kind} {item}")

    def create(self, job: Job) -> Any:
        return _outcome(self.ask(subjects.CREATE, "", messages.write_create([job])))

    def insist(self, job: Job) -> str:
        """Create although a submitter was just killed."""
        answer = self._insist(subjects.CREATE, "", messages.write_create([job]))
        return str(_outcome(answer)["state"])

    def delete(self, job: str, grace: Optional[int] = None) -> Any:
        return self._insist(subjects.DELETE, job, messages.write_delete(Delete(job, grace)))

    def query(self, *jobs: str, everything: bool = False) -> StatusUpdate:
        """All pages as one."""
        cursor, states, gone = "", [], []
        while True:
            asked = Query(None if everything else jobs, cursor)
            answer = self._insist(subjects.QUERY, "", messages.write_query(asked))
            page = publications.read_status_update(answer, self.pool)
            states += page.states
            gone += page.gone
            cursor = page.cursor
            if not cursor:
                return page._replace(states=tuple(states), gone=tuple(gone))

    def status(self, job: str) -> Optional[JobStatus]:
        states = self.query(job).states
        return states[0] if states else None

    def until(
        self, job: str, what: Callable[[JobStatus], Any], seconds: float = PATIENCE_S
    ) -> JobStatus:
        """The job's status, once something is true of it."""

        def look() -> Optional[JobStatus]:
            status = self.status(job)
            return status if status is not None and what(status) else None

        return eventually(look, seconds, f"{job}: {self.status(job)}")

    def ended(self, job: str, seconds: float = PATIENCE_S) -> JobStatus:
        return self.until(job, lambda status: status.phase == ENDED, seconds)

    def until_gone(self, job: str, seconds: float = PATIENCE_S) -> None:
        eventually(lambda: job in self.query(job).gone, seconds, f"{job} is gone")

    def logs(self, job: str, container: str = "main", **options: Any) -> bytes:
        """The whole log, window by window; what cannot be told now is asked for again."""
        content, cursor, patience = b"", "", time.monotonic() + PATIENCE_S
        while True:
            data, end = self.window(job, container, cursor=cursor, **options)
            if isinstance(end, Refusal) and end.retry and time.monotonic() < patience:
                time.sleep(0.2)
                continue
            content += data
            assert isinstance(end, LogEnd), end
            cursor = end.cursor
            if end.over:
                return content

    def window(self, job: str, container: str = "main", **options: Any) -> tuple[bytes, Any]:
        """One window: its bytes, and how it ended."""
        asked = {
            "cursor": "", "window_bytes": 4 * 1024 * 1024, "wait_s": 2, "follow": False,
            "previous": False, "timestamps": False, "tail": -1, "since_ms": 0, **options,
        }  # fmt: skip
        return self.do(self._window(LogRequest(job=job, container=container, **asked)))

    async def _window(self, request: LogRequest) -> tuple[bytes, Any]:
        where = subjects.subject("interlink", subjects.LOGS, self.pool, request.job)
        content = []
        async with self.link.stream() as (inbox, next_message):
            await self.link.publish_request(where, inbox, messages.write_log_request(request))
            while True:
                raw = await next_message(30)
                if raw[:1] == messages.LOG_DATA:
                    content.append(raw[1:])
                    continue
                message = codec.decode(raw)
                end = messages.read_refusal(message) or messages.read_log_end(message)
                data = b"".join(content)
                assert not isinstance(end, LogEnd) or end.sent == len(data)
                return data, end


def _outcome(answer: Any) -> Any:
    """Of the one job that a create was for."""
    return answer["outcomes"][0] if "outcomes" in answer else answer


class Submitter:
    """One real submitter process for a pool in a folder."""

    def __init__(self, nats: NatsServer, folder: Path, **pool: Any) -> None:
        self.folder = folder
        self.directory = folder / "pool"
        self.name = uuid.uuid4().hex[:6]
        quick = {"spool_s": 1, "poll_s": 1, "heartbeat_s": 1, "resources_s": 2}
        timing = {**quick, **pool.pop("timing", {})}
        policy = {"namespaces": ["*"], **pool.pop("policy", {})}
        config = {
            "nats": {"servers": [nats.url]},
            "pools": [
                {
                    "name": POOL,
                    "directory": str(self.directory),
                    "build": {"runtime": {"name": "host"}},
                    "policy": policy,
                    "timing": timing,
                    **pool,
                }
            ],
        }
        self.config = folder / f"submitter-{self.name}.yaml"
        self.config.write_text(json.dumps(config))
        self.log = folder / f"submitter-{self.name}.log"
        self.process: Optional[subprocess.Popen[bytes]] = None

    def start(self) -> Submitter:
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "submitter", "--config", str(self.config)]
            environment = {**os.environ, "PYTHONPATH": str(REPO)}
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        return self

    def until_ready(self, centre: Centre) -> Submitter:
        """Wait until a new process speaks for the pool."""
        before = {told.instance for told in centre.publications}
        if self.process is None:
            self.start()
        eventually(
            lambda: {told.instance for told in centre.publications} - before, why=self.words()
        )
        return self

    def words(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def stop(self, number: int = signal.SIGTERM, seconds: float = 30) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(seconds)
        self.process = None
        return code


def kill(submitters: Iterable[Submitter]) -> None:
    """End those that run."""
    for one in submitters:
        if one.process is not None:
            one.stop(signal.SIGKILL)
