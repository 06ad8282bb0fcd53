"""The whole system as real processes: nats-server, submitters, the plugin under gunicorn, a Redis.

Each process can be killed and started again by its name, as a test of faults wants it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Optional

import yaml

from scripts.lib.interlink import Answer, Plugin, create_request, free_port, is_up
from tests.support import redis_server
from tests.support.nats_server import NatsServer
from tests.support.processes import kill_left

REPO = Path(__file__).resolve().parents[2]
POOL = "site-a"
PATIENCE_S = 30.0


class Process:
    """One program of ours, and what it says."""

    def __init__(self, name: str, command: Sequence[str], folder: Path, **environment: str) -> None:
        self.name = name
        self.log_file = folder / f"{name}.log"
        self._command = list(command)
        self._environment = {**os.environ, "PYTHONPATH": str(REPO), **environment}
        self.process: Optional[subprocess.Popen[bytes]] = None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=REPO,
                env=self._environment,
                start_new_session=True,
            )

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it, with all it has started that shares its process group; returns its exit code."""
        process, self.process = self.process, None
        if process is None:
            return 0
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGCONT)
            if number != signal.SIGTERM:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
        try:
            return process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise AssertionError(f"{self.name} did not end: {self.log()[-2000:]}") from None

    def log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def children(self) -> list[int]:
        """The processes that it has forked, such as gunicorn's workers."""
        return [
            int(pid)
            for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        ]


class System:
    """All of it, below one folder."""

    def __init__(
        self,
        folder: Path,
        *,
        submitters: int = 1,
        workers: int = 1,
        pools: Sequence[str] = (POOL,),
        pool: Optional[dict[str, Any]] = None,
        plugin: Optional[dict[str, Any]] = None,
        redis: bool = False,
        plugin_environment: Optional[dict[str, str]] = None,
    ) -> None:
        self.folder = folder
        self.nats = NatsServer(folder / "nats")
        self.port = free_port()
        self.plugin = Plugin("127.0.0.1", self.port)
        self.processes: dict[str, Process] = {}
        self.site = folder / "site"
        self.site.mkdir(exist_ok=True)
        if redis:
            self._add_redis()
        self._add_plugin(workers, plugin or {}, plugin_environment or {})
        for number in range(submitters):
            self._add_submitter(number, pools, pool or {})

    # --- making ---------------------------------------------------------------------------------

    @property
    def nats_settings(self) -> dict[str, Any]:
        return {"servers": [self.nats.websocket_url], "ca_file": self.nats.ca_file}

    def _add(self, name: str, command: Sequence[str], **environment: str) -> None:
        self.processes[name] = Process(name, command, self.folder, **environment)

    def _add_plugin(
        self, workers: int, settings: dict[str, Any], environment: dict[str, str]
    ) -> None:
        state = self.folder / "state"
        state.mkdir()
        settings = {
            "nats": self.nats_settings,
            "listen": f"http://127.0.0.1:{self.port}",
            "server": {"workers": workers},
            "state_directory": str(state),
            **settings,
        }
        if "redis" in self.processes:
            settings["redis"] = {"url": f"redis://127.0.0.1:{self.redis_port}/0"}
        file = self._write("plugin.yaml", settings)
        gunicorn = [
            sys.executable,
            "-m",
            "gunicorn",
            "--config",
            "python:plugin_server.gunicorn_conf",
        ]
        command = [*gunicorn, "plugin_server.wsgi:app"]
        self._add("plugin", command, INTERLINK_PLUGIN_CONFIG=str(file), **environment)

    def _add_submitter(self, number: int, pools: Sequence[str], settings: dict[str, Any]) -> None:
        entries = [
            {
                "name": pool,
                "directory": str(self.site / pool),
                "backend": "host",
                **settings,
                "policy": {"namespaces": ["*"], **settings.get("policy", {})},
            }
            for pool in pools
        ]
        for pool in pools:
            (self.site / pool).mkdir(mode=0o700, exist_ok=True)
        content = {"nats": self.nats_settings, "pools": entries}
        file = self._write(f"submitter{number}.yaml", content)
        self._add(f"submitter{number}", [sys.executable, "-m", "submitter", "--config", str(file)])

    def _add_redis(self) -> None:
        self.redis_port = free_port()
        self._add("redis", redis_server.command(self.redis_port, "--dir", str(self.folder)))

    def _write(self, name: str, content: dict[str, Any]) -> Path:
        path = self.folder / name
        path.write_text(yaml.safe_dump(content))
        return path

    # --- life -----------------------------------------------------------------------------------

    def __enter__(self) -> System:
        try:
            self.start_all()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start_all(self) -> None:
        self.nats.start()
        for process in self.processes.values():
            process.start()
        self.wait_until_ready()

    def __exit__(self, *_: object) -> None:
        self.plugin.close()
        for name in reversed(self.processes):
            self.processes[name].stop(signal.SIGKILL)
        self.nats.stop()

    def wait_until_ready(self) -> None:
        """The plugin answers and has heard what every pool offers."""
        self.until(self._knows_its_pools, "the plugin knows its pools")

    def _knows_its_pools(self) -> bool:
        with contextlib.suppress(OSError, Answer, ValueError):
            if is_up("127.0.0.1", self.port):
                return "cpu" in self.plugin.ping().get("resources", {})
        return False

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        if name == "nats":
            self.nats.stop(number)
        else:
            self.processes[name].stop(number)

    def start(self, name: str) -> None:
        if name == "nats":
            self.nats.start()
        else:
            self.processes[name].start()

    def until(self, holds: Callable[[], Any], what: str, seconds: float = PATIENCE_S) -> Any:
        """Wait for something to hold; its value. What the programs said is in the failure."""
        end = time.monotonic() + seconds
        while not (value := holds()):
            assert time.monotonic() < end, f"not in {seconds:g} s: {what}\n{self.logs()}"
            time.sleep(0.05)
        return value

    def logs(self) -> str:
        said = (f"--- {name}\n{process.log()[-3000:]}" for name, process in self.processes.items())
        return "\n".join(said)

    # --- pods -----------------------------------------------------------------------------------

    def run(self, *commands: str, pool: str = POOL, **spec: Any) -> dict[str, Any]:
        """Create a pod with one container for each shell command; its raw pod."""
        request = request_of(*commands, pool=pool, **spec)
        self.plugin.create(request)
        pod: dict[str, Any] = request["pod"]
        return pod

    def status(self, pod: dict[str, Any]) -> Optional[dict[str, Any]]:
        found = self.plugin.status([pod])
        return found[0] if found else None

    def ended(self, pod: dict[str, Any], seconds: float = PATIENCE_S) -> list[dict[str, Any]]:
        """Wait for the end of all containers; how each of the main ones ended."""

        def ends() -> Optional[list[dict[str, Any]]]:
            status = self.status(pod)
            states = [container["state"] for container in status["containers"]] if status else []
            if states and all("terminated" in state for state in states):
                return [state["terminated"] for state in states]
            return None

        found: list[dict[str, Any]] = self.until(ends, f"{job_of(pod)} has ended", seconds)
        return found

    def log(self, pod: dict[str, Any], container: str = "c0", **options: Any) -> bytes:
        return b"".join(self.plugin.logs(pod, container, **options))

    def directory(self, pod: dict[str, Any], pool: str = POOL) -> Path:
        return self.site / pool / "jobs" / job_of(pod)


def job_of(pod: dict[str, Any]) -> str:
    return f"{pod['metadata']['name']}-{pod['metadata']['uid']}"


def request_of(*commands: str, pool: str = POOL, **spec: Any) -> dict[str, Any]:
    """The create request of a pod with containers c0, c1, ... that run shell commands."""
    containers = [
        {"name": f"c{number}", "image": "busybox:1.36", "command": ["sh", "-c", command]}
        for number, command in enumerate(commands)
    ]
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"t{uuid.uuid4().hex[:8]}", "namespace": "team-a"},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 2,
            "containers": containers,
            **spec,
        },
    }
    return create_request([("pod", json.dumps(manifest))], pool)


@contextlib.contextmanager
def running(folder: Path, kind: type[System] = System, **options: Any) -> Iterator[System]:
    """A system, up and ready, and nothing left of it afterwards."""
    with kind(folder, **options) as system:
        try:
            yield system
        finally:
            for name in system.processes:
                if name.startswith("submitter"):
                    system.kill(name)
            kill_left(folder, whole_path=True)
