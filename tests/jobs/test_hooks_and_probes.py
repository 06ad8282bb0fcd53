"""Lifecycle hooks and probes: exec in the container itself, HTTP, TCP, with all their numbers."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any, Optional

import pytest

from scripts.lib.interlink import free_port
from templates.job.records import RUNNING, TERMINATED, ContainerState, JobState
from templates.site.build_config import BuildConfig
from tests.support.processes import assert_none_left, marked
from tests.support.script_runner import Running, Site, pod, sh, with_script

WORK = {"name": "work", "mountPath": "/work"}
VOLUMES = [{"name": "work", "emptyDir": {}}]
STAY = "trap 'exit 0' TERM; echo up; while :; do sleep 0.1; done"


def quick(site: Site) -> BuildConfig:
    return with_script(site.config, restart_backoff_s=1)


def c0(state: JobState) -> ContainerState:
    return state.containers.get("c0", ContainerState("c0"))


def end_code(state: JobState) -> Optional[int]:
    end = c0(state).end
    return None if end is None else end.exit_code


def execute(script: str) -> dict[str, Any]:
    return {"exec": {"command": ["sh", "-c", script]}}


def asking(script: str, **numbers: int) -> dict[str, Any]:
    """A probe each second, whose answer counts however long a loaded machine takes for it."""
    return {**execute(script), "periodSeconds": 1, "timeoutSeconds": 60, **numbers}


def work_of(running: Running) -> Path:
    return running.directory / "scratch" / "work"


class Web(ThreadingHTTPServer):
    """Remembers what it is asked; answers what it is told to."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.status = 200
        self.hold: Optional[threading.Event] = None

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Web)
        server.asked.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
        if server.hold is not None:
            server.hold.wait(60)
        self.send_response(server.status)
        self.end_headers()
        self.wfile.write(b"ok\n")

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def web(tls: Optional[ssl.SSLContext] = None) -> Iterator[Web]:
    """A server on this machine's localhost, which containers share."""
    server = Web()
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        if server.hold is not None:
            server.hold.set()
        server.shutdown()
        thread.join()
        server.server_close()


# --- hooks ---------------------------------------------------------------------------------------


def test_post_start_runs_in_the_container_before_it_counts_as_running(site: Site) -> None:
    hook = "until [ -e /tmp/$0 ]; do sleep 0.1; done; cat /tmp/$0 >/work/seen"
    name = f"hook-{site.folder.name}"
    running = site.start(
        pod(
            sh(
                f"echo mine >/tmp/{name}.new; mv /tmp/{name}.new /tmp/{name}; {STAY}",
                volumeMounts=[WORK],
                lifecycle={"postStart": execute(hook.replace("$0", name))},
            ),
            volumes=VOLUMES,
        )
    )
    running.until(lambda state: c0(state).state == RUNNING)
    assert (work_of(running) / "seen").read_text() == "mine\n"
    running.until(lambda _: "up" in log_of(running))
    running.terminate()
    assert running.wait().ends() == {"c0": 0}
    Path(f"/tmp/{name}").unlink(missing_ok=True)  # of the host runtime


def test_a_failing_post_start_hook_ends_the_container(site: Site) -> None:
    done = site.run(
        pod(
            marked(site.folder, sh(STAY, lifecycle={"postStart": execute("exit 4")})),
            sh("echo fine"),
        )
    )
    end = c0(done.state).end
    assert end is not None
    assert "postStart" in end.message
    assert "FailedPostStartHook" in end.message
    assert done.log("c1") == "fine\n"
    assert_none_left(site.folder)


def test_a_pod_that_is_ended_does_not_wait_for_a_post_start_hook(site: Site) -> None:
    hook = execute("touch /work/hook; sleep 600")
    running = site.start(
        pod(
            marked(site.folder, sh(STAY, volumeMounts=[WORK], lifecycle={"postStart": hook})),
            volumes=VOLUMES,
        )
    )
    running.until(lambda _: (work_of(running) / "hook").exists())
    running.terminate()
    running.wait()
    assert_none_left(site.folder)


def test_pre_stop_runs_in_the_container_before_it_is_told_to_end(site: Site) -> None:
    script = "trap 'cat /work/hook; exit 6' TERM; echo up; while :; do sleep 0.1; done"
    running = site.start(
        pod(
            sh(
                script,
                volumeMounts=[WORK],
                lifecycle={"preStop": execute("sleep 0.5; echo before >/work/hook")},
            ),
            volumes=VOLUMES,
        )
    )
    running.until(lambda state: c0(state).state == RUNNING)
    running.until(lambda _: "up" in log_of(running))
    running.terminate()
    done = running.wait()
    assert (done.ends(), done.log("c0")) == ({"c0": 6}, "up\nbefore\n")


def log_of(running: Running, container: str = "c0", start: int = 0) -> str:
    path = running.directory / "logs" / f"{container}.{start}.log"
    return path.read_text() if path.exists() else ""


def test_pre_stop_does_not_run_when_the_container_ends_by_itself(site: Site) -> None:
    done = site.run(
        pod(
            sh("sleep 0.3", volumeMounts=[WORK], lifecycle={"preStop": execute("echo >/work/h")}),
            sh("sleep 1; ls /work | wc -l", volumeMounts=[WORK]),
            volumes=VOLUMES,
        )
    )
    assert done.log("c1") == "0\n"


def test_a_pre_stop_hook_that_hangs_is_cut_off_by_the_grace_period(site: Site) -> None:
    running = site.start(
        pod(
            marked(site.folder, sh(STAY, lifecycle={"preStop": execute("sleep 600")})),
            terminationGracePeriodSeconds=1,
        )
    )
    running.until(lambda state: c0(state).state == RUNNING)
    running.until(lambda _: "up" in log_of(running))
    running.terminate()
    done = running.wait()
    assert done.ends() == {"c0": 0}, "it is still told, and given two seconds"
    assert_none_left(site.folder)


def test_a_pre_stop_hook_can_ask_by_http_or_just_sleep(site: Site) -> None:
    with web() as server:
        running = site.start(
            pod(
                sh(STAY, lifecycle={"preStop": {"httpGet": {"path": "/bye", "port": server.port}}}),
                sh(STAY, lifecycle={"preStop": {"sleep": {"seconds": 2}}}),
            )
        )
        running.until(lambda _: "up" in log_of(running) and "up" in log_of(running, "c1"))
        running.terminate()
        done = running.wait()
    assert [path for path, _ in server.asked] == ["/bye"]
    assert done.ends() == {"c0": 0, "c1": 0}
    first, second = (done.state.containers[name].end for name in ("c0", "c1"))
    assert first is not None
    assert second is not None
    assert second.finished_ms - second.started_ms >= 2000


# --- readiness -----------------------------------------------------------------------------------


def test_readiness_follows_its_probe_and_changes_nothing_else(site: Site) -> None:
    probe = asking("test -e /work/ready", failureThreshold=1)
    running = site.start(pod(sh(STAY, volumeMounts=[WORK], readinessProbe=probe), volumes=VOLUMES))
    state = running.until(lambda state: c0(state).state == RUNNING)
    assert not c0(state).ready
    flag = work_of(running) / "ready"
    flag.touch()
    running.until(lambda state: c0(state).ready)
    flag.unlink()
    state = running.until(lambda state: not c0(state).ready)
    assert (c0(state).state, c0(state).restarts) == (RUNNING, 0)
    flag.touch()
    running.until(lambda state: c0(state).ready)
    streams = [(r.stream, r.values["ready"]) for r in running.records if r.stream == "r.c0"]
    assert streams == [("r.c0", value) for value in "0101"]
    running.terminate()
    assert running.wait().ends() == {"c0": 0}


def test_without_a_readiness_probe_a_running_container_is_ready(site: Site) -> None:
    running = site.start(pod(sh(STAY)))
    state = running.until(lambda state: c0(state).state == RUNNING)
    assert (c0(state).begun, c0(state).ready) == (True, True)
    running.until(lambda _: "up" in log_of(running))
    running.terminate()
    assert running.wait().ends() == {"c0": 0}


def test_an_exec_probe_sees_the_containers_own_tmp(container_site: Site) -> None:
    probe = asking("grep -q mine /tmp/probe && grep -q mine /own")
    running = container_site.start(
        pod(sh(f"echo mine >/tmp/probe; echo mine >/own; {STAY}", readinessProbe=probe))
    )
    running.until(lambda state: c0(state).ready)
    running.terminate()
    assert running.wait().ends() == {"c0": 0}


def test_an_exec_probe_sees_the_containers_environment_and_directory(site: Site) -> None:
    check = '[ "$B" = "it\'s  \\$HOME" ] && [ "$(pwd)" = /work ]'
    probe = asking(check)
    running = site.start(
        pod(
            sh(
                STAY,
                env=[{"name": "B", "value": "it's  $HOME"}],
                workingDir="/work",
                volumeMounts=[WORK],
                readinessProbe=probe,
            ),
            volumes=VOLUMES,
        )
    )
    running.until(lambda state: c0(state).ready)
    running.terminate()
    assert running.wait().ends() == {"c0": 0}


def test_success_and_failure_thresholds_count_in_a_row(site: Site) -> None:
    # Answers as /work/say says, and counts the questions.
    check = "echo x >>/work/asked; [ ! -e /work/bad ]"
    probe = asking(check, successThreshold=3, failureThreshold=2)
    running = site.start(pod(sh(STAY, volumeMounts=[WORK], readinessProbe=probe), volumes=VOLUMES))
    running.until(lambda state: c0(state).ready)
    asked = len((work_of(running) / "asked").read_text().split())
    assert asked >= 3
    (work_of(running) / "bad").touch()
    before = len((work_of(running) / "asked").read_text().split())
    running.until(lambda state: not c0(state).ready)
    assert len((work_of(running) / "asked").read_text().split()) >= before + 1
    running.terminate()
    assert running.wait().ends() == {"c0": 0}


def test_a_probe_is_asked_once_in_each_period(site: Site) -> None:
    probe = asking("cut -d' ' -f1 /proc/uptime >>/work/asked", periodSeconds=2)
    running = site.start(pod(sh(STAY, volumeMounts=[WORK], readinessProbe=probe), volumes=VOLUMES))
    running.until(lambda state: c0(state).ready)
    asked = work_of(running) / "asked"
    running.until(lambda _: len(asked.read_text().split()) >= 3)
    times = [float(seconds) for seconds in asked.read_text().split()]
    running.terminate()
    running.wait()
    assert all(later - sooner >= 1.3 for sooner, later in pairwise(times)), times


def test_an_initial_delay_comes_before_the_first_question(site: Site) -> None:
    with web() as server:
        probe = {"httpGet": {"port": server.port}, "initialDelaySeconds": 3, "periodSeconds": 1}
        running = site.start(pod(sh(STAY, readinessProbe=probe)))
        state = running.until(lambda state: c0(state).ready)
        running.terminate()
        done = running.wait()
    ready = [r for r in done.records if r.stream == "r.c0" and r.values["ready"] == "1"]
    assert ready[0].at_ms - c0(state).started_ms >= 3000


def test_an_http_probe_asks_as_the_pod_says(site: Site) -> None:
    with web() as server:
        server.status = 204
        probe = {
            "httpGet": {
                "path": "/ready?x=$(y)&z='1'",
                "port": "web",
                "httpHeaders": [
                    {"name": "X-From", "value": "a 'probe' $HOME"},
                    {"name": "Host", "value": "example.org"},
                ],
            },
            "periodSeconds": 1,
        }
        ports = [{"name": "web", "containerPort": server.port}]
        running = site.start(pod(sh(STAY, ports=ports, readinessProbe=probe)))
        running.until(lambda state: c0(state).ready)
        server.status = 500
        running.until(lambda state: not c0(state).ready)
        server.status = 302
        running.until(lambda state: c0(state).ready)
        running.until(lambda _: "up" in log_of(running))
        running.terminate()
        assert running.wait().ends() == {"c0": 0}
    path, headers = server.asked[0]
    assert path == "/ready?x=$(y)&z='1'"
    assert headers["x-from"] == "a 'probe' $HOME"
    assert headers["host"] == "example.org"
    assert headers["user-agent"].startswith("kube-probe/")


def test_an_http_probe_reaches_a_server_in_the_container(site: Site) -> None:
    port = free_port()
    probe = {"httpGet": {"path": "/index.html", "port": port}, "periodSeconds": 1}
    serve = f"cd /work; echo hi >index.html; exec busybox httpd -f -p 127.0.0.1:{port} -h /work"
    running = site.start(
        pod(
            sh(serve, volumeMounts=[WORK], readinessProbe=probe),
            volumes=VOLUMES,
            terminationGracePeriodSeconds=1,
        )
    )
    running.until(lambda state: c0(state).ready)
    running.terminate()
    running.wait()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_an_https_probe_takes_any_certificate(folder: Path) -> None:
    site = Site("host", folder)
    key, certificate = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        [
            *"openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=nobody".split(),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with web(context) as server:
        probe = {"httpGet": {"scheme": "HTTPS", "port": server.port, "path": "/s"}}
        running = site.start(pod(sh(STAY, readinessProbe={**probe, "periodSeconds": 1})))
        running.until(lambda state: c0(state).ready)
        running.until(lambda _: "up" in log_of(running))
        running.terminate()
        assert running.wait().ends() == {"c0": 0}
    assert server.asked[0][0] == "/s"


def test_a_tcp_probe_wants_somebody_to_listen(site: Site) -> None:
    port = free_port()
    probe = {"tcpSocket": {"port": port}, "periodSeconds": 1, "failureThreshold": 1}
    running = site.start(pod(sh(STAY, readinessProbe=probe)))
    running.until(lambda state: c0(state).state == RUNNING)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(64)
        running.until(lambda state: c0(state).ready)
    running.until(lambda state: not c0(state).ready)
    running.until(lambda _: "up" in log_of(running))
    running.terminate()
    assert running.wait().ends() == {"c0": 0}


@pytest.mark.parametrize("kind", ["exec", "httpGet"])
def test_a_probe_that_hangs_has_failed_at_its_timeout_and_leaves_nothing(
    site: Site, kind: str
) -> None:
    with web() as server:
        server.hold = threading.Event()
        action = (
            execute("echo x >>/work/asked; sleep 600")
            if kind == "exec"
            else {"httpGet": {"port": server.port}}
        )
        probe = {**action, "periodSeconds": 1, "timeoutSeconds": 1, "failureThreshold": 2}
        running = site.start(
            pod(
                marked(site.folder, sh(STAY, volumeMounts=[WORK], livenessProbe=probe)),
                volumes=VOLUMES,
            )
        )
        done = running.wait()
    end = c0(done.state).end
    assert end is not None
    assert "liveness probe" in end.message
    assert_none_left(site.folder)


# --- liveness and startup ------------------------------------------------------------------------


def test_a_container_that_fails_its_liveness_probe_ends_with_the_reason(site: Site) -> None:
    probe = asking("[ ! -e /work/sick ]", failureThreshold=2)
    script = "trap 'exit 8' TERM; while :; do sleep 0.1; done"
    running = site.start(
        pod(
            sh(script, volumeMounts=[WORK], livenessProbe=probe),
            sh("until [ -e /work/over ]; do sleep 0.1; done", volumeMounts=[WORK]),
            volumes=VOLUMES,
        )
    )
    running.until(lambda state: c0(state).state == RUNNING)
    (work_of(running) / "sick").touch()
    state = running.until(lambda state: c0(state).state == TERMINATED)
    end = c0(state).end
    assert end is not None
    assert (end.exit_code, state.containers["c1"].state) == (8, RUNNING)
    assert "Container c0 failed its liveness probe" in end.message
    (work_of(running) / "over").touch()
    assert running.wait().ends() == {"c0": 8, "c1": 0}


def test_a_container_that_fails_its_liveness_probe_starts_again_if_it_may(site: Site) -> None:
    probe = asking("[ ! -e /work/sick ]", failureThreshold=1)
    script = "trap 'exit 8' TERM; rm -f /work/sick; echo up; while :; do sleep 0.1; done"
    running = site.start(
        pod(
            sh(script, volumeMounts=[WORK], livenessProbe=probe),
            volumes=VOLUMES,
            restartPolicy="Always",
        ),
        quick(site),
    )
    for start in (0, 1, 2):
        running.until(lambda _, start=start: "up" in log_of(running, "c0", start))
        if start < 2:
            (work_of(running) / "sick").touch()
    running.terminate()
    done = running.wait()
    assert c0(done.state).restarts == 2
    last = c0(done.state).last_end
    assert last is not None
    assert last.exit_code == 8


def test_a_container_that_will_not_end_is_killed_after_the_probes_grace_period(site: Site) -> None:
    probe = {
        **execute("false"),
        "periodSeconds": 1,
        "failureThreshold": 1,
        "terminationGracePeriodSeconds": 1,
    }
    deaf = marked(site.folder, sh("trap '' TERM; while :; do sleep 0.1; done", livenessProbe=probe))
    done = site.run(pod(deaf, terminationGracePeriodSeconds=3600))
    assert end_code(done.state) == 137
    assert_none_left(site.folder)


def test_the_other_probes_wait_for_the_startup_probe(site: Site) -> None:
    startup = asking("[ -e /work/up ]", failureThreshold=600)
    never = asking("echo x >>/work/asked; [ -e /work/up ]")
    running = site.start(
        pod(
            sh(
                STAY,
                volumeMounts=[WORK],
                startupProbe=startup,
                livenessProbe={**never, "failureThreshold": 1},
                readinessProbe={**never, "failureThreshold": 1},
            ),
            volumes=VOLUMES,
        )
    )
    state = running.until(lambda state: c0(state).state == RUNNING)
    assert (c0(state).begun, c0(state).ready) == (False, False)
    running.until(lambda _: "up" in log_of(running))
    assert not (work_of(running) / "asked").exists()
    (work_of(running) / "up").touch()
    state = running.until(lambda state: c0(state).ready)
    assert (c0(state).begun, c0(state).restarts) == (True, 0)
    running.terminate()
    assert running.wait().ends() == {"c0": 0}


def test_a_startup_probe_that_never_succeeds_ends_the_container(site: Site) -> None:
    startup = asking("false", failureThreshold=2)
    done = site.run(pod(sh(STAY, startupProbe=startup)))
    end = c0(done.state).end
    assert end is not None
    assert "Container c0 failed its startup probe" in end.message


def test_probes_end_with_their_container(site: Site) -> None:
    probe = {**execute("sleep 600"), "periodSeconds": 1, "timeoutSeconds": 600}
    done = site.run(
        pod(
            marked(
                site.folder,
                sh("sleep 1.5", livenessProbe=probe, readinessProbe=probe),
            )
        )
    )
    assert done.ends() == {"c0": 0}
    assert_none_left(site.folder)
