"""The path of a pod, over real programs: HTTP, plugin, NATS over wss, submitter, a real bash."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.lib.interlink import Answer
from tests.support.system import System, job_of, request_of, running


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with running(tmp_path_factory.mktemp("path")) as system:
        yield system


def test_a_pod_runs_at_the_site_and_its_end_and_log_come_back(system: System) -> None:
    pod = system.run("echo hello; exit 3", "echo other >&2")
    ends = system.ended(pod)
    assert [end["exitCode"] for end in ends] == [3, 0]
    assert system.log(pod, "c0") == b"hello\n"
    assert system.log(pod, "c1") == b"other\n"


def test_an_init_container_comes_first_and_is_reported(system: System) -> None:
    volume = {"name": "work", "emptyDir": {}}
    mount = [{"name": "work", "mountPath": "/work"}]
    init = {"name": "i", "image": "busybox", "command": ["sh", "-c", "echo from init"]}
    pod = system.run("true", initContainers=[{**init, "volumeMounts": mount}], volumes=[volume])
    system.ended(pod)
    status = system.status(pod)
    assert status is not None
    assert status["initContainers"][0]["state"]["terminated"]["exitCode"] == 0
    assert system.log(pod, "i") == b"from init\n"


def test_a_failed_init_container_fails_the_pod(system: System) -> None:
    init = {"name": "i", "image": "busybox", "command": ["sh", "-c", "exit 9"]}
    pod = system.run("echo never", initContainers=[init])
    system.ended(pod)
    status = system.status(pod)
    assert status is not None
    assert status["initContainers"][0]["state"]["terminated"]["exitCode"] == 9
    assert system.log(pod, "c0") == b""


def test_a_deadline_fails_a_pod_whose_containers_end_well(system: System) -> None:
    pod = system.run("trap 'exit 0' TERM; sleep 60 & wait", activeDeadlineSeconds=1)
    (end,) = system.ended(pod)
    assert end["exitCode"] != 0
    assert "deadline" in end["message"].lower()


def test_a_deleted_pod_is_told_to_stop_and_leaves_nothing(system: System) -> None:
    pod = system.run("trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.1; done")
    system.until(lambda: system.log(pod) == b"up\n", "the container is up")
    system.plugin.delete(pod)
    system.until(lambda: not system.directory(pod).exists(), "its directory is gone")
    system.until(lambda: system.status(pod) is None, "the plugin has forgotten it")


def test_a_second_create_is_the_same_job(system: System) -> None:
    request = request_of("echo once >>$HOME/never; sleep 0.2")
    first = system.plugin.create(request)
    assert system.plugin.create(request) == first
    system.ended(request["pod"])
    assert system.plugin.create(request) == first


def test_a_create_after_its_delete_is_refused(system: System) -> None:
    request = request_of("echo never")
    system.plugin.delete(request["pod"])
    with pytest.raises(Answer, match="deleted"):
        system.plugin.create(request)


def test_an_unknown_pool_is_refused_with_those_there_are(system: System) -> None:
    with pytest.raises(Answer) as refused:
        system.plugin.create(request_of("true", pool="nowhere"))
    assert "nowhere" in refused.value.text
    assert "site-a" in refused.value.text
    assert "\n" not in refused.value.text.strip()


def test_what_a_site_cannot_give_is_refused_in_words(system: System) -> None:
    volume = {"name": "v", "hostPath": {"path": "/etc"}}
    with pytest.raises(Answer, match=r"host_paths|hostPath"):
        system.plugin.create(request_of("true", volumes=[volume]))


def test_a_log_is_followed_until_its_container_ends(system: System) -> None:
    pod = system.run("for i in 1 2 3; do echo $i; sleep 0.3; done", "sleep 5")
    assert system.log(pod, "c0", Follow=True) == b"1\n2\n3\n"
    status = system.status(pod)
    assert status is not None
    assert "running" in status["containers"][1]["state"]
    system.plugin.delete(pod)


def test_who_follows_a_pod_that_is_deleted_hears_its_last_words(system: System) -> None:
    pod = system.run("trap 'sleep 1; echo bye; exit 7' TERM; echo up; while :; do sleep 0.1; done")
    system.until(lambda: system.log(pod) == b"up\n", "the container is up")
    heard: list[bytes] = []
    follower = threading.Thread(target=lambda: heard.append(system.log(pod, Follow=True)))
    follower.start()
    system.plugin.delete(pod)
    assert system.log(pod).startswith(b"up\n"), "while it ends, it can be read"
    follower.join(30)
    assert heard == [b"up\nbye\n"]


def test_one_submitter_serves_several_pools(tmp_path: Path) -> None:
    with running(tmp_path, pools=("one", "two")) as several:
        pods = {
            pool: several.run(f"echo {pool}; exit {len(pool)}", pool=pool)
            for pool in ("one", "two")
        }
        for pool, pod in pods.items():
            assert [end["exitCode"] for end in several.ended(pod)] == [3]
            assert several.log(pod) == f"{pool}\n".encode()
            assert several.directory(pod, pool).exists()
        offered = several.plugin.ping()["resources"]
        assert offered["pods"] == "220", "the node offers what both of them do"


def test_twenty_megabytes_of_secrets_arrive(system: System) -> None:
    import base64
    import hashlib
    import os

    request = request_of("cat /s/* | sha256sum")
    content = {f"k{n}": os.urandom(1_000_000) for n in range(20)}
    encoded = {key: base64.b64encode(value).decode() for key, value in content.items()}
    secret = {"metadata": {"name": "big", "namespace": "team-a"}, "data": encoded}
    request["container"][0]["secrets"] = [secret]
    spec = request["pod"]["spec"]
    spec["volumes"] = [{"name": "s", "secret": {"secretName": "big"}}]
    spec["containers"][0]["volumeMounts"] = [{"name": "s", "mountPath": "/s"}]
    system.plugin.create(request)
    pod = request["pod"]
    (end,) = system.ended(pod)
    expected = hashlib.sha256(b"".join(content[key] for key in sorted(content))).hexdigest()
    assert (end["exitCode"], system.log(pod)) == (0, f"{expected}  -\n".encode())
    assert not list((system.directory(pod)).glob("secret/**/k*")), "secrets end with their job"


def test_many_logs_options(system: System) -> None:
    pod = system.run("for i in 1 2 3 4 5; do echo line $i; done")
    system.ended(pod)
    assert system.log(pod, Tail=2) == b"line 4\nline 5\n"
    assert system.log(pod, Bytes=8) == b"line 1\nl"
    stamped = system.log(pod, Timestamps=True).splitlines()
    assert [line.split(b" ", 1)[1] for line in stamped] == [b"line %d" % n for n in range(1, 6)]
    assert system.log(pod, SinceTime="2100-01-01T00:00:00Z") == b""


def test_nothing_secret_is_written_where_others_can_read(system: System) -> None:
    request = request_of("sleep 30")
    spec = request["pod"]["spec"]
    spec["containers"][0]["env"] = [{"name": "PASSWORD", "value": "geheim-und-lang"}]
    system.plugin.create(request)
    pod = request["pod"]
    system.until(lambda: system.directory(pod).exists(), "the job is there")
    for path in system.directory(pod).rglob("*"):
        if path.is_file() and b"geheim-und-lang" in path.read_bytes():
            assert path.stat().st_mode & 0o077 == 0, path
    for process in system.processes.values():
        assert "geheim-und-lang" not in process.log()
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert b"geheim-und-lang" not in line.read_bytes()
        except OSError:
            continue
    system.plugin.delete(pod)
    assert job_of(pod)
