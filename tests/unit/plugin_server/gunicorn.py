"""The plugin as it runs: gunicorn, its workers, and the settings in a file."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from scripts.lib.interlink import free_port
from tests.support.nats_server import NatsServer
from tests.unit.plugin_server.conftest import until

REPO = Path(__file__).resolve().parents[3]


class Gunicorn:
    """One master with its workers; ``call`` is a client with one connection that it keeps."""

    application = "plugin_server.wsgi:app"

    def __init__(self, folder: Path, broker: NatsServer, **settings: Any) -> None:
        self.port = free_port()
        self.health = 0  # the port for health and metrics, for tests that have one
        self.log_file = folder / "plugin.log"
        self._config = folder / "plugin.yaml"
        nats = {"servers": [broker.websocket_url], "ca_file": broker.ca_file}
        content = {"nats": nats, "listen": f"http://127.0.0.1:{self.port}", **settings}
        self._config.write_text(json.dumps(content))
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: http.client.HTTPConnection | None = None

    def start(self) -> Gunicorn:
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "gunicorn",
                    "--config",
                    "python:plugin_server.gunicorn_conf",
                    self.application,
                ],
                stdout=log,
                stderr=log,
                cwd=REPO,
                env={
                    **os.environ,
                    "PYTHONPATH": str(REPO),
                    "INTERLINK_PLUGIN_CONFIG": str(self._config),
                },
            )
        until(self.answers, 30)
        return self

    def answers(self) -> bool:
        assert self._process is not None and self._process.poll() is None, self.log()
        try:
            return self.call("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def until_replaced(self, worker: int) -> None:
        """Wait for another worker to answer; a new one that is told to stop may not hear it yet."""
        until(lambda: self.workers() not in ([], [worker]), 30)
        until(self.answers, 30)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.close()
        process, self._process = self._process, None
        if process is None:
            return 0
        workers = self.workers(process.pid)
        process.send_signal(number)
        try:
            return process.wait(30)
        finally:
            for pid in (process.pid, *workers) if process.poll() != 0 else ():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()

    def __enter__(self) -> Gunicorn:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def workers(self, pid: int = 0) -> list[int]:
        assert pid or self._process is not None
        pid = pid or (self._process.pid if self._process else 0)
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return [int(child) for child in children.split()]

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        """Status and body of an answer; ``body`` may be bytes, or anything for JSON."""
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        if self._connection is None:
            self._connection = self.connect()
        try:
            self._connection.request(method, path, content)
            answer = self._connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise OSError(str(error)) from error

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class UnixConnection(http.client.HTTPConnection):
    """HTTP as interLink speaks it over a socket in a file."""

    def __init__(self, path: str) -> None:
        super().__init__("unix", timeout=20)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)
