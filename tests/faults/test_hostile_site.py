"""What one site's program can do to the plugin and to other sites: the real ones, counted bytes."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.hostile_site import DONE, POOL, uid_of_end
from tests.support.nats_server import NatsServer
from tests.unit.plugin_server.conftest import until
from tests.unit.plugin_server.gunicorn import REPO, Gunicorn
from tests.unit.plugin_server.pod_builders import create_request, job_of, log_request, pod, status
from tests.unit.plugin_server.site import Site

pytestmark = pytest.mark.faults
MOST = 100 * 1024 * 1024  # bytes that the plugin may grow by, for a while
IN_FRAMES = 64 * 1024 * 1024  # what the server may have waiting comes in one WebSocket message
PODS = 20
LOG = b"the true log\n"


class Plugin:
    """The plugin's process, a good site, and its pods."""

    def __init__(self, server: Gunicorn, site: Site, nats: NatsServer) -> None:
        self.server, self.site, self.nats = server, site, nats
        self.pods = [pod(pool=site.pool) for _ in range(PODS)]
        for raw in self.pods:
            assert server.call("POST", "/create", create_request(raw))[0] == 200
            site.say(status(raw, "started"))
            site.logs[job_of(raw), "main"] = LOG
        self.check()

    def check(self) -> None:
        """The good site and its pods are as they were."""
        for raw in self.pods:
            until(lambda: self._state(raw) == "started", 60)  # noqa: B023 (called at once)
        for raw in self.pods[:3]:
            assert self.server.call("GET", "/getLogs", log_request(raw).encode())[1] == LOG
        resources = self.offered()
        assert int(resources["memory"]) >= 16 * 2**30
        assert int(resources["pods"]) >= 100
        names = {entry["resourceType"] for entry in resources.get("accelerators", ())}
        assert len(names) <= 64
        assert all(re.fullmatch(r"[a-z0-9.]+/[a-z0-9]+", name) for name in names), names

    def _state(self, raw: dict[str, Any]) -> str:
        (found,) = json.loads(self.server.call("GET", "/status", [raw])[1])
        assert "terminated" not in found["containers"][0]["state"]
        return "started"

    def offered(self) -> Any:
        return json.loads(self.server.call("GET", "/status", [])[1])["resources"]

    def memory(self, key: str) -> int:
        (worker,) = self.server.workers()
        (line,) = re.findall(rf"{key}:\s+(\d+) kB", Path(f"/proc/{worker}/status").read_text())
        return int(line) * 1024

    def forget_peak(self) -> None:
        (worker,) = self.server.workers()
        Path(f"/proc/{worker}/clear_refs").write_text("5")

    @contextlib.contextmanager
    def hostile(self, act: str) -> Iterator[subprocess.Popen[bytes]]:
        jobs = map(job_of, self.pods)
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.hostile_site", self.nats.url, act, *jobs], cwd=REPO
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def plugin(nats: NatsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plugin]:
    folder = tmp_path_factory.mktemp("plugin")
    with (
        Site(nats.url, "good") as site,
        Gunicorn(
            folder, nats, state_directory=str(folder / "state"), pool_timeout_s=9999
        ) as server,
    ):
        until(lambda: b"resources" in server.call("GET", "/status", [])[1])
        yield Plugin(server, site, nats)


@pytest.mark.parametrize(
    "act",
    [
        "huge_texts",
        "many_states",
        "many_values",
        "host_paths",
        "resources",
        "parts",
        "endless_answers",
        "flood",
        "takeover",
    ],
)
def test_whatever_a_site_sends_it_harms_itself_alone(plugin: Plugin, act: str) -> None:
    end = uid_of_end(act)
    its_own = pod(uid=str(end), pool=POOL, name="end")
    plugin.forget_peak()
    before = plugin.memory("VmRSS")

    def is_done() -> bool:
        offered = {"resourceType": DONE, "available": str(end.node)}
        is_offered = offered in plugin.offered().get("accelerators", ())
        return is_offered and plugin.server.call("GET", "/status", [its_own])[1] != b"[]"

    with plugin.hostile(act) as process:
        until(lambda: is_done() or process.poll() is not None, 60)
        assert process.poll() is None
        plugin.check()
    assert plugin.memory("VmHWM") - before < MOST + (IN_FRAMES if act == "flood" else 0)
    complaints = plugin.server.log().count(f".{POOL}: refused a message")
    assert complaints < 200
