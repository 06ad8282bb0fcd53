"""The plugin's processes: threads, workers, settings, lines."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from scripts.lib.interlink import free_port
from templates import __version__
from tests.support.nats_server import NatsServer
from tests.unit.plugin_server.conftest import until
from tests.unit.plugin_server.gunicorn import REPO, Gunicorn, UnixConnection
from tests.unit.plugin_server.pod_builders import create_request, job_of, log_request, pod, status
from tests.unit.plugin_server.site import Site

# --- threads --------------------------------------------------------------------------------------


@pytest.mark.security
def test_five_hundred_creates_that_wait_and_all_followers_leave_status_and_ping_alone(
    nats: NatsServer, site: Site, tmp_path: Path
) -> None:
    with (
        contextlib.ExitStack() as followers,
        Gunicorn(tmp_path, nats, create_timeout_s=8) as found,
    ):
        until(lambda: b"resources" in found.call("GET", "/status", [])[1])
        pods = [pod() for _ in range(8)]
        for known in pods:
            assert found.call("POST", "/create", create_request(known))[0] == 200
            site.say(status(known, "started"))
            site.logs[job_of(known), "main"] = b"first\n"
        for number in range(32):  # a namespace's share of 64
            known = pods[number % 8]
            follower = followers.enter_context(contextlib.closing(found.connect()))
            follower.request("GET", "/getLogs", log_request(known, Follow=True))
            assert follower.getresponse().read(6) == b"first\n"
        site.mute.add("create")
        codes: list[int] = []

        def create() -> None:
            with contextlib.closing(found.connect()) as connection:
                connection.request("POST", "/create", json.dumps(create_request(pod())))
                codes.append(connection.getresponse().status)

        threads = [threading.Thread(target=create) for _ in range(500)]
        for thread in threads:
            thread.start()
        slowest = 0.0
        while not codes:
            began = time.monotonic()
            assert found.call("GET", "/status", [])[0] == 200
            assert len(json.loads(found.call("GET", "/status", [known])[1])) == 1
            slowest = max(slowest, time.monotonic() - began)
        for thread in threads:
            thread.join()
        assert codes == [504] * 500
        assert slowest < 2


def test_it_ends_when_told_to_and_leaves_nothing(nats: NatsServer, tmp_path: Path) -> None:
    found = Gunicorn(tmp_path, nats, server={"workers": 2}, state_directory=str(tmp_path / "s"))
    found.start()
    workers = found.workers()
    assert found.stop() == 0
    assert [pid for pid in workers if Path(f"/proc/{pid}").exists()] == []
    assert list((tmp_path / "s").iterdir()) == []


# --- several workers ------------------------------------------------------------------------------


def test_any_worker_answers_alike_and_they_count_together(
    nats: NatsServer, site: Site, tmp_path: Path
) -> None:
    with Gunicorn(tmp_path, nats, server={"workers": 3}) as found:
        raw = pod()
        site.say(status(raw, "queued"))

        def ask() -> int:
            found.close()  # another connection, perhaps another worker
            return len(json.loads(found.call("GET", "/status", [raw])[1]))

        until(lambda: len(re.findall("jobs fetched", found.log())) == 3)
        until(ask)
        before = counted(found, "status")
        for _ in range(30):
            assert ask() == 1
        assert counted(found, "status") == before + 30
        os.kill(found.workers()[0], signal.SIGKILL)
        until(lambda: len(found.workers()) == 3)
        until(lambda: len(re.findall("jobs fetched", found.log())) == 4)
        assert [ask() for _ in range(20)] == [1] * 20
        assert counted(found, "status") > before


def metrics(found: Gunicorn) -> str:
    text: str = found.call("GET", "/metrics")[1].decode()
    return text


def counted(found: Gunicorn, endpoint: str) -> int:
    pattern = rf'^interlink_plugin_calls_total\{{endpoint="{endpoint}",outcome="ok"\}} (\S+)$'
    numbers = re.findall(pattern, metrics(found), re.MULTILINE)
    return int(sum(float(number) for number in numbers))


def test_the_metrics_say_what_pods_there_are(nats: NatsServer, site: Site, tmp_path: Path) -> None:
    with Gunicorn(tmp_path, nats) as found:
        until(lambda: 'pods{phase="queued",pool="slurm-a"} 0.0' in metrics(found))
        site.say(status(pod(), "queued"), status(pod(), "ended", exit_code=3))
        line = 'interlink_plugin_pods{phase="queued",pool="slurm-a"} 1.0'
        until(lambda: line in metrics(found))
        until(lambda: 'interlink_plugin_pods_failed{pool="slurm-a"} 1.0' in metrics(found))
        page = metrics(found)
        assert 'interlink_plugin_pods{phase="started",pool="slurm-a"} 0.0' in page
        assert 'interlink_plugin_deletions_waiting{pool="slurm-a"} 0.0' in page
        assert "interlink_plugin_nats_connected 1.0" in page
        assert 'interlink_plugin_pool_silent_seconds{pool="slurm-a"}' in page
        assert 'interlink_plugin_pool_in_trouble{pool="slurm-a"} 0.0' in page
        site.trouble = "its controller is away"
        site.announce_now()
        line = 'interlink_plugin_pool_in_trouble{pool="slurm-a"} 1.0'
        until(lambda: line in metrics(found))


# --- lines ----------------------------------------------------------------------------------------


def test_json_lines_name_the_job_and_hold_no_secret(
    nats: NatsServer, site: Site, tmp_path: Path
) -> None:
    raw = pod()
    raw["spec"]["containers"][0]["env"] = [{"name": "TOKEN", "value": "s3cr3t-value"}]
    logging = {"format": "json", "level": "debug"}
    with Gunicorn(tmp_path, nats, logging=logging) as found:
        until(lambda: b"resources" in found.call("GET", "/status", [])[1])
        assert found.call("POST", "/create", create_request(raw))[0] == 200
    lines = [json.loads(line) for line in found.log().splitlines()]
    assert job_of(raw) in [line.get("job") for line in lines]
    assert "s3cr3t-value" not in found.log()


def test_a_wrong_setting_is_one_line(nats: NatsServer, tmp_path: Path) -> None:
    found = Gunicorn(tmp_path, nats, create_timeout=5)
    with pytest.raises(AssertionError):
        found.start()
    assert found.log().strip() == (
        f"plugin_server: {tmp_path}/plugin.yaml: create_timeout: unknown key "
        "(did you mean create_timeout_s?)"
    )


# --- the two doors --------------------------------------------------------------------------------


def test_the_door_for_health_leads_to_nothing_else(nats: NatsServer, tmp_path: Path) -> None:
    port = free_port()
    socket_path = tmp_path / "plugin.sock"
    health = f"127.0.0.1:{port}"
    plugin = Gunicorn(tmp_path, nats, listen=f"unix://{socket_path}", health_listen=health)
    plugin.port = port
    with plugin as found:
        assert found.call("GET", "/healthz") == (200, b"ok\n")
        assert b"interlink_plugin_nats_connected 1" in found.call("GET", "/metrics")[1]
        elsewhere = ("/create", "/status", "/delete", "/getLogs", "/", "/metrics/x")
        for method, path in itertools.product(("GET", "POST"), elsewhere):
            status_code, words = found.call(method, path, [])
            assert status_code == 404, path
            assert b"here are /healthz" in words
        with contextlib.closing(UnixConnection(str(socket_path))) as connection:
            connection.request("GET", "/status", "[]")
            assert connection.getresponse().status == 200


def test_the_program_tells_its_version_and_takes_no_arguments() -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "from plugin_server.main import main; main()", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPO)

    assert run("--version").stdout == f"interlink-plugin {__version__}\n"
    assert "unrecognized arguments: --bind" in run("--bind", "0.0.0.0:80").stderr
