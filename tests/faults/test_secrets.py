"""A pod's secrets stay in files of mode 0600: in no log, argv, environment, core, other file."""

from __future__ import annotations

import base64
import os
import signal
from pathlib import Path

import pytest

from scripts.lib.interlink import is_up
from tests.support.system import System, request_of, running

pytestmark = pytest.mark.faults
VALUES = {"env": b"geheim-env-7391", "file": b"geheim-file-7392", "login": b"geheim-login-7393"}


def test_secrets_are_nowhere_but_in_private_files(tmp_path: Path) -> None:
    with running(tmp_path, redis=True, plugin={"logging": {"level": "debug"}}) as system:
        pod = _with_secrets(system)
        _assert_hidden(system, "while it runs")
        # A crash in the middle, and a log of it, tell nothing either.
        system.kill("submitter0", signal.SIGABRT)
        system.kill("plugin", signal.SIGABRT)
        system.until(lambda: not is_up("127.0.0.1", system.port), "its worker has ended, too")
        system.start("submitter0")
        system.start("plugin")
        system.wait_until_ready()
        system.plugin.delete(pod)
        system.until(lambda: not system.directory(pod).exists(), "it is removed")
        graves = system.directory(pod).parents[1] / "incoming"
        system.until(lambda: not any(graves.iterdir()), "nothing is left of it")
        _assert_hidden(system, "after the job")
        left = [
            path for path in tmp_path.rglob("*") if path.is_file() and _holds(path.read_bytes())
        ]
        assert left == []


def _with_secrets(system: System) -> dict[str, object]:
    request = request_of("sleep 300")
    encoded = base64.b64encode(VALUES["file"]).decode()
    secret = {"metadata": {"name": "s", "namespace": "team-a"}, "data": {"key": encoded}}
    request["container"][0]["secrets"] = [secret]
    spec = request["pod"]["spec"]
    spec["volumes"] = [{"name": "s", "secret": {"secretName": "s"}}]
    container = spec["containers"][0]
    container["volumeMounts"] = [{"name": "s", "mountPath": "/s"}]
    container["env"] = [{"name": "PASSWORD", "value": VALUES["env"].decode()}]
    system.plugin.create(request)
    pod: dict[str, object] = request["pod"]
    system.until((system.directory(request["pod"]) / "records").exists, "it runs")
    return pod


def _holds(content: bytes) -> bool:
    return any(value in content for value in VALUES.values())


def _is_open_to_others(path: Path, top: Path) -> bool:
    """Whether anybody else gets to a file, and may read it once there."""
    between = [folder for folder in path.parents if top in folder.parents]
    reachable = all(folder.stat().st_mode & 0o011 for folder in between)
    return reachable and path.stat().st_mode & 0o044 != 0


def _assert_hidden(system: System, when: str) -> None:
    for path in system.folder.rglob("*"):
        if path.is_file() and _holds(path.read_bytes()):
            assert not _is_open_to_others(path, system.folder), f"{path}, {when}"
            assert system.site in path.parents, f"{path}, {when}"
            assert path.suffix != ".log", f"{path}, {when}"
    for process in Path("/proc").glob("[0-9]*"):
        try:
            assert not _holds((process / "cmdline").read_bytes()), f"argv, {when}"
            programs = {system.processes[name].pid for name in system.processes}
            if int(process.name) in programs:
                assert not _holds((process / "environ").read_bytes()), f"environment, {when}"
        except OSError:
            continue
    cores = [
        path for path in Path.cwd().glob("core*") if path.is_file() and os.access(path, os.R_OK)
    ]
    assert [core for core in cores if _holds(core.read_bytes())] == []
