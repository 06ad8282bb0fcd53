"""A site that nothing reaches for a while, with its sockets frozen rather than closed."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from scripts.lib.interlink import free_port, is_up
from tests.support.system import Process, System, request_of, running

pytestmark = pytest.mark.faults
CUT_S = 45  # longer than the pool's time-out below, and than any ping
BACK_S = 5


class CutOff(System):
    """The submitter reaches NATS through a proxy that can be frozen."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.proxy_port = free_port()
        super().__init__(folder, plugin={"pool_timeout_s": 20}, **options)
        command = [sys.executable, "-m", "tests.faults.frozen_proxy", str(self.proxy_port)]
        target = str(self.nats.websocket_port)
        self.processes = {"proxy": Process("proxy", [*command, target], folder), **self.processes}

    @property
    def nats_settings(self) -> dict[str, Any]:
        direct = super().nats_settings
        if getattr(self, "_for_submitter", False):
            return {**direct, "servers": [f"wss://localhost:{self.proxy_port}"]}
        return direct

    def _add_submitter(self, *arguments: Any) -> None:
        self._for_submitter = True
        super()._add_submitter(*arguments)
        self._for_submitter = False

    def start_all(self) -> None:
        self.processes["proxy"].start()
        self.until(lambda: is_up("127.0.0.1", self.proxy_port), "the proxy listens")
        self.nats.start()
        for name, process in self.processes.items():
            if name != "proxy":
                process.start()
        self.wait_until_ready()


def test_a_site_that_is_cut_off_fails_no_pod_and_is_right_within_seconds(tmp_path: Path) -> None:
    with running(tmp_path, kind=CutOff) as system:
        marker = tmp_path / "go"
        long = system.run(
            f"echo up; while [ ! -e {marker} ]; do sleep 0.1; done; echo done; exit 5"
        )
        short = system.run("sleep 3; exit 4")
        system.until(lambda: system.log(long) == b"up\n", "it runs")
        proxy = system.processes["proxy"].pid
        os.kill(proxy, signal.SIGSTOP)
        end = time.monotonic() + CUT_S
        marker.touch()  # both end while nobody can tell
        while time.monotonic() < end:
            for pod in (long, short):
                status = system.status(pod)
                assert status is not None
                assert "terminated" not in status["containers"][0]["state"]
            assert system.plugin.ping()["status"] == "ok"
            time.sleep(0.5)
        os.kill(proxy, signal.SIGCONT)
        start = time.monotonic()
        assert [end["exitCode"] for end in system.ended(long, 60)] == [5]
        assert [end["exitCode"] for end in system.ended(short, 60)] == [4]
        assert time.monotonic() - start < BACK_S
        assert system.log(long) == b"up\ndone\n"


def test_a_create_waits_for_a_site_that_comes_back(tmp_path: Path) -> None:
    with running(tmp_path) as system:
        system.kill("submitter0")
        request = request_of("exit 6")
        creating = threading.Thread(target=system.plugin.create, args=(request,))
        creating.start()
        time.sleep(3)
        assert creating.is_alive()
        system.start("submitter0")
        creating.join(30)
        assert not creating.is_alive()
        assert [end["exitCode"] for end in system.ended(request["pod"])] == [6]


def test_a_delete_reaches_a_site_that_was_away(tmp_path: Path) -> None:
    with running(tmp_path) as system:
        pod = system.run("sleep 300")
        system.until((system.directory(pod) / "records").exists, "it runs")
        system.kill("submitter0")
        start = time.monotonic()
        system.plugin.delete(pod)
        assert time.monotonic() - start < 2
        system.kill("plugin")  # the wish outlives whoever heard it
        system.start("plugin")
        system.start("submitter0")
        system.until(lambda: not system.directory(pod).exists(), "the job is removed", 60)
