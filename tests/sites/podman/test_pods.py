"""Pods on a podman host: what their containers share, and what they share with nobody else."""

from __future__ import annotations

import json
import socket
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scripts.lib.interlink import free_port
from templates.common.errors import PodRejected
from templates.job.status import JobStatus
from templates.site.build_config import BuildConfig
from tests.sites.podman.host import CONFIG, PodmanHost, job_of
from tests.unit.submitter.conftest import Start
from tests.unit.submitter.rig import Centre, eventually

# Serves one line on a port, again and again.
SERVE = "while :; do echo hello | nc -l -p 8080 >/dev/null; done"
ASK = (
    "until nc 127.0.0.1 8080 </dev/null >/tmp/said 2>/dev/null && [ -s /tmp/said ]; "
    "do sleep 0.1; done; cat /tmp/said"
)
WEB = "mkdir /www; echo ok >/www/ready; exec /bin/busybox httpd -f -h /www -p {port}"


def beside(script: str, **more: Any) -> dict[str, Any]:
    return {"name": "beside", "image": "none", "command": ["bash", "-c", script], **more}


def with_second(script: str, second: str, **spec: Any) -> Any:
    """A job of two containers."""
    main = {"name": "main", "image": "none", "command": ["bash", "-c", script]}
    return job_of(containers=[main, beside(second)], **spec)


def exit_codes(status: JobStatus) -> dict[str, int]:
    ends = {one.state.name: one.state.end for one in status.containers}
    return {name: end.exit_code for name, end in ends.items() if end is not None}


def test_containers_share_a_network_a_host_name_and_memory_with_each_other_only(
    start: Start, centre: Centre
) -> None:
    start()
    first = f"echo here >/dev/shm/from-main; {SERVE}"
    second = f"{ASK}; cat /dev/shm/from-main; hostname"
    job = with_second(f"{first} & wait", second, name="web")
    centre.create(job)
    eventually(lambda: centre.logs(job.name, "beside") == b"hello\nhere\nweb\n", 60)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", 8080), 5)
    centre.delete(job.name, 0)
    centre.until_gone(job.name)


def test_two_pods_have_the_same_port(start: Start, centre: Centre) -> None:
    start()
    jobs = [with_second(f"{SERVE} & wait", f"{ASK}; sleep 1000") for _ in range(2)]
    for job in jobs:
        centre.create(job)
    for job in jobs:
        eventually(lambda job=job: centre.logs(job.name, "beside") == b"hello\n", 60)
    for job in jobs:
        centre.delete(job.name, 0)
    for job in jobs:
        centre.until_gone(job.name)


def test_init_containers_run_first_and_volumes_are_shared(
    start: Start, centre: Centre, host: PodmanHost, tmp_path: Path
) -> None:
    start()
    mounts = [{"name": "work", "mountPath": "/work"}]
    first = {
        "name": "first",
        "image": "none",
        "command": ["bash", "-c", "echo first >/work/file"],
        "volumeMounts": mounts,
    }
    main = {
        "name": "main",
        "image": "none",
        "command": ["bash", "-c", "cat /work/file; exit 4"],
        "volumeMounts": mounts,
    }
    volumes = [{"name": "work", "emptyDir": {}}]
    job = job_of(initContainers=[first], containers=[main], volumes=volumes)
    centre.create(job)
    assert exit_codes(centre.ended(job.name, 60)) == {"first": 0, "main": 4}
    assert centre.logs(job.name, "main") == b"first\n"
    eventually(lambda: not host.containers(tmp_path))


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("kind", ["httpGet", "tcpSocket"])
def test_probes_reach_a_pod_on_its_own_network(
    start: Start, centre: Centre, alone: bool, kind: str
) -> None:
    start()
    port = free_port()
    action = {"port": port, **({"path": "/ready"} if kind == "httpGet" else {})}
    main = {
        "name": "main",
        "image": "none",
        "command": ["bash", "-c", WEB.format(port=port)],
        "readinessProbe": {kind: action, "periodSeconds": 1, "timeoutSeconds": 30},
    }
    job = job_of(containers=[main] if alone else [main, beside("sleep 1000")])
    centre.create(job)
    ready = centre.until(job.name, lambda s: s.containers[0].state.ready, 60)
    assert ready.containers[0].state.begun
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), 5)
    centre.delete(job.name, 0)
    centre.until_gone(job.name)


def test_a_probe_that_fails_on_the_pods_network_stops_the_container(
    start: Start, centre: Centre
) -> None:
    start()
    with socket.create_server(("127.0.0.1", 0)) as server:  # the node's own: it must not be asked
        port = server.getsockname()[1]
        probe = {"tcpSocket": {"port": port}, "periodSeconds": 1, "failureThreshold": 1}
        main = {
            "name": "main",
            "image": "none",
            "command": ["bash", "-c", "trap 'exit 9' TERM; while :; do sleep 0.1; done"],
            "livenessProbe": {**probe, "timeoutSeconds": 30},
        }
        job = job_of(containers=[main])
        centre.create(job)
        end = centre.ended(job.name, 60).containers[0].state.end
    assert end is not None
    assert (end.exit_code, end.message) == (9, "Container main failed its liveness probe (1 times)")


def test_a_hook_reaches_a_pod_on_its_own_network(
    start: Start, centre: Centre, tmp_path: Path
) -> None:
    start()
    port = free_port()
    script = f"#!/bin/sh\\necho asked >{tmp_path}/asked\\necho\\n"
    main = {
        "name": "main",
        "image": "none",
        "command": [
            "bash",
            "-c",
            f"mkdir -p /www/cgi-bin; printf '{script}' >/www/cgi-bin/stop; "
            f"chmod +x /www/cgi-bin/stop; exec /bin/busybox httpd -f -h /www -p {port}",
        ],
        "readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 1, "timeoutSeconds": 30},
        "lifecycle": {"preStop": {"httpGet": {"port": port, "path": "/cgi-bin/stop"}}},
    }
    job = job_of(containers=[main], grace=20)
    centre.create(job)
    centre.until(job.name, lambda s: s.containers[0].state.ready, 60)
    centre.delete(job.name)
    centre.until_gone(job.name, 60)
    assert (tmp_path / "asked").read_text() == "asked\n"


def test_logs_can_be_read_while_they_grow(start: Start, centre: Centre, tmp_path: Path) -> None:
    start()
    job = job_of(f"echo one; until [ -e {tmp_path}/go ]; do sleep 0.1; done; echo two")
    centre.create(job)
    eventually(lambda: centre.window(job.name)[0] == b"one\n")
    (tmp_path / "go").touch()
    centre.ended(job.name)
    assert centre.logs(job.name) == b"one\ntwo\n"


def test_host_network_needs_the_sites_consent() -> None:
    with pytest.raises(PodRejected) as caught:
        job_of(hostNetwork=True)
    assert str(caught.value) == "pod.spec.hostNetwork: this site does not allow it"
    allowed = replace(CONFIG, rules=replace(CONFIG.rules, privileged=True))
    job = job_of(config=allowed, hostNetwork=True)
    assert job.privileged
    assert "--network=host" in job.script


# --- limits ---------------------------------------------------------------------------------------

# The memory and cpu controllers of the machine that runs these tests may belong to the first kind
# of control groups, where rootless podman has no part in them. So this says that it has, notes the
# limits that podman is asked for, and answers as podman does of a container that the kernel killed.
PRETENDER = r"""#!/bin/bash
case $1 in
info) echo 'cpu memory pids '; exit ;;
inspect) case $* in *OOMKilled*) echo true; exit ;; esac ;;
run)
    words=()
    while [ $# -gt 0 ]; do
        case $1 in
        --memory | --memory-swap | --cpus) echo "$1 $2" >>FOLDER/limits; shift ;;
        --rm) echo --rm >>FOLDER/limits ;;
        *) words+=("$1") ;;
        esac
        shift
    done
    set -- "${words[@]}" ;;
esac
exec /usr/bin/podman "$@"
"""


def test_where_podman_can_it_keeps_containers_to_their_limits_and_tells_who_exceeds_them(
    start: Start, centre: Centre, host: PodmanHost, tmp_path: Path
) -> None:
    program = tmp_path / "podman"
    program.write_text(PRETENDER.replace("FOLDER", str(tmp_path)))
    program.chmod(0o755)
    runtime = replace(CONFIG.runtime, executable=str(program))
    start()
    limits = {"limits": {"memory": "64Mi", "cpu": "1500m"}}
    job = job_of("kill -KILL 0; sleep 1; exit 137", config=_with(runtime), resources=limits)
    centre.create(job)
    end = centre.ended(job.name, 60).containers[0].state.end
    assert end is not None
    assert (end.exit_code, end.reason) == (137, "OOMKilled")
    said = (tmp_path / "limits").read_text().splitlines()
    assert said == ["--memory 67108864", "--memory-swap 67108864", "--cpus 1.5"]
    eventually(lambda: not host.containers(tmp_path))


def _with(runtime: Any) -> BuildConfig:
    return replace(CONFIG, runtime=runtime)


def test_elsewhere_memory_is_watched(start: Start, centre: Centre) -> None:
    start()
    grow = "x=$(head -c 200000000 /dev/zero | tr '\\0' x); sleep 1000"
    job = job_of(grow, resources={"limits": {"memory": "64Mi"}})
    centre.create(job)
    end = centre.ended(job.name, 60).containers[0].state.end
    assert end is not None
    assert (end.exit_code, end.reason) == (137, "OOMKilled")


def test_check_tells_what_podman_can_do_here(
    start: Start, host: PodmanHost, tmp_path: Path
) -> None:
    submitter = start()
    done = host_check(host, submitter.config)
    lines = [line for line in done if "podman" in line or "network" in line]
    assert any(
        line.startswith("ok    pool site: runtime: podman: podman version") for line in lines
    )
    assert "ok    pool site: network pasta: a pod was made, started and removed" in lines
    config = json.loads(submitter.config.read_text())
    config["pools"][0]["build"]["podman"]["network"] = "nowhere"
    submitter.config.write_text(json.dumps(config))
    wrong = [line for line in host_check(host, submitter.config) if "nowhere" in line]
    assert len(wrong) == 1
    assert wrong[0].startswith("WRONG pool site: network nowhere: podman: exit code 125: ")


def host_check(host: PodmanHost, config: Path) -> list[str]:
    done = subprocess.run(
        host.python("-m", "submitter", "check", "--config", str(config)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.stdout.splitlines()
