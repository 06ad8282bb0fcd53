"""A real Redis on loopback, started and killed at will."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path
from typing import Optional

from redis import Redis
from redis.exceptions import RedisError

from scripts.lib.interlink import free_port


def command(port: int, *options: str) -> list[str]:
    """What runs one that keeps nothing on disk."""
    # The Debian package redis-tools has the server under this name, and starts no service.
    server = 'exec -a redis-server redis-check-rdb "$@"'
    common = ["--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    return ["bash", "-c", server, "redis", *common, *options]


class RedisServer:
    """One; it keeps its port over ``stop`` and ``start``, and nothing else."""

    def __init__(self, folder: Path, *options: str, password: str = "") -> None:
        self.port = free_port()
        self._password = password
        secret = ["--requirepass", password] if password else []
        self._command = command(self.port, "--dir", str(folder), *secret, *options)
        self._process: Optional[subprocess.Popen[bytes]] = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        end = time.monotonic() + 20
        while not self._answers():
            assert self._process.poll() is None, "Redis does not start"
            assert time.monotonic() < end, "Redis does not answer"
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except RedisError:
            return False

    def client(self) -> Redis:
        return Redis(port=self.port, password=self._password or None)

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None
