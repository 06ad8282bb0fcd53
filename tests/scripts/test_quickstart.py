"""scripts/quickstart, as somebody new types it: it shows what happens, and leaves nothing."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

import pytest

from scripts.lib.interlink import free_port
from tests.support.processes import left
from tests.support.sources import REPO
from tests.unit.submitter.rig import eventually

pytestmark = pytest.mark.install

SCRIPT = str(REPO / "scripts" / "quickstart")
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "mine"},
    "spec": {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {"name": "main", "image": "none", "command": ["bash", "-c", "echo up; exit 3"]}
        ],
    },
}


class Quickstart:
    """One run of it, with the tests' own environment, below a folder where all it makes is seen."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self._log = folder / "said"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "scripts.lib.quickstart", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(REPO), "TMPDIR": str(folder)},
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        return self._log.read_text()

    def until(self, words: str) -> str:
        found = eventually(
            lambda: re.search(words, self.said) or self.process.poll() is not None, 60, self.said
        )
        assert isinstance(found, re.Match), self.said
        return found[0]

    def ended(self) -> int:
        code = self.process.wait(60)
        assert "Traceback" not in self.said, self.said
        assert [path.name for path in self.folder.glob("interlink-quickstart-*")] == []
        assert left(self.folder, whole_path=True) == []
        return code


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    path = tmp_path / "pod.json"
    path.write_text(json.dumps(POD))
    return path


@pytest.fixture
def run(tmp_path: Path) -> Iterator[list[Quickstart]]:
    """Those that a test has started; what still runs is ended."""
    started: list[Quickstart] = []
    yield started
    for one in started:
        if one.process.poll() is None:
            one.process.send_signal(signal.SIGINT)
            one.process.wait(60)


def start(run: list[Quickstart], folder: Path, *arguments: str) -> Quickstart:
    run.append(Quickstart(folder, *arguments))
    return run[-1]


def test_the_example_goes_the_whole_way(run: list[Quickstart], tmp_path: Path) -> None:
    one = start(run, tmp_path)
    assert one.ended() == 0
    assert "main | HELLO FROM A POD" in one.said
    assert "prepare | prepared" in one.said
    assert re.findall(r"^  (\w+) +(\d+)$", one.said, re.MULTILINE) == [
        ("prepare", "0"), ("main", "0"), ("guard", "0"),
    ]  # fmt: skip


def test_the_exit_code_is_the_pods(run: list[Quickstart], tmp_path: Path, pod: Path) -> None:
    one = start(run, tmp_path, str(pod))
    assert one.ended() == 3
    assert "main | up" in one.said


@pytest.mark.parametrize(
    "words", ["starting nats-server", "starting the plugin", "is job", "main +running"]
)
def test_ctrl_c_at_any_moment(run: list[Quickstart], tmp_path: Path, pod: Path, words: str) -> None:
    long = json.loads(json.dumps(POD).replace("exit 3", "sleep 1000"))
    pod.write_text(json.dumps(long))
    one = start(run, tmp_path, str(pod))
    one.until(words)
    one.process.send_signal(signal.SIGINT)
    assert one.ended() == 130
    assert one.said.endswith("quickstart: interrupted; everything it started is stopped\n")


def test_kept_up_it_says_how_to_talk_to_it(
    run: list[Quickstart], tmp_path: Path, pod: Path
) -> None:
    one = start(run, tmp_path, "--keep", str(pod))
    one.until("metrics: .*")

    def asked(what: str) -> str:
        command = one.until(rf"{what}: +curl .*").partition(":")[2]
        return subprocess.run(
            shlex.split(command), capture_output=True, text=True, check=True, timeout=30
        ).stdout

    (status,) = json.loads(asked("states of the pod"))
    assert status["containers"][0]["state"]["terminated"]["exitCode"] == 3
    assert asked("log of main") == "up\n"
    assert json.loads(asked("what the node is"))["status"] == "ok"
    assert "interlink_plugin_calls_total" in asked("metrics")
    assert asked("delete the pod") == "deleted"
    eventually(lambda: asked("states of the pod") == "[]")
    one.process.send_signal(signal.SIGINT)
    assert one.ended() == 130


def child(one: Quickstart, name: str) -> Optional[int]:
    """The program that was started with this word in its command line."""
    pid = one.process.pid
    for found in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        if name in Path(f"/proc/{found}/cmdline").read_text().split("\0"):
            return int(found)
    return None


@pytest.mark.parametrize(
    ("name", "word"), [("submitter", "submitter"), ("plugin", "plugin_server.wsgi:app")]
)
def test_a_program_that_dies_is_named(
    run: list[Quickstart], tmp_path: Path, pod: Path, name: str, word: str
) -> None:
    pod.write_text(json.dumps(POD).replace("exit 3", "sleep 1000"))
    one = start(run, tmp_path, str(pod))
    one.until("main +running")
    pid = child(one, word)
    assert pid is not None
    os.killpg(pid, signal.SIGKILL)
    assert one.ended() == 2
    assert f"quickstart: {name} ended too early: " in one.said


def test_what_is_wrong_is_one_line(run: list[Quickstart], tmp_path: Path, pod: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("a: [")
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        port = str(taken.getsockname()[1])
        cases = {
            ("/does/not/exist.yaml",): "/does/not/exist.yaml: No such file or directory",
            (str(tmp_path),): "Is a directory",
            (str(wrong),): "is not YAML",
            ("--port", "99999", str(pod)): "--port 99999: a port is a number from 1 to 65535",
            ("--port", port, str(pod)): f"port {port} is in use: choose another with --port",
        }
        for arguments, words in cases.items():
            one = start(run, tmp_path, *arguments)
            assert one.ended() == 2
            (line,) = one.said.splitlines()
            assert line.startswith("quickstart: ") and words in line


def test_a_pod_that_is_refused_says_why(run: list[Quickstart], tmp_path: Path, pod: Path) -> None:
    volume = {"name": "v", "hostPath": {"path": "/etc"}}
    raw = {**POD, "spec": {**POD["spec"], "volumes": [volume]}}  # type: ignore[dict-item]
    pod.write_text(json.dumps(raw))
    one = start(run, tmp_path, str(pod))
    assert one.ended() == 2
    assert "quickstart: pod mine was refused: " in one.said
    assert "hostPath" in one.said or "host_paths" in one.said


@pytest.mark.install
def test_without_a_package_index_it_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [SCRIPT],
        env={
            **os.environ,
            "INTERLINK_CACHE": str(tmp_path / "cache"),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
            "PIP_EXTRA_INDEX_URL": "",
            "PIP_FIND_LINKS": "",
            "PIP_RETRIES": "0",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 1
    assert "pip could not install the requirements (is the package index reachable?)" in done.stderr
    assert "Traceback" not in done.stderr
