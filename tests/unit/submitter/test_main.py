"""The command line of the submitter, and how a signal ends it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from submitter.cli.config_file import EXAMPLE, load
from submitter.main import main
from templates import __version__
from tests.support.sources import REPO

# A service of a few lines in the place of the real one, to see how it is started and ended.
PROGRAM = """
import asyncio, sys
from submitter import main
{before}
async def serve(settings, options):
    {service}
import types
sys.modules["submitter.cli.service"] = types.SimpleNamespace(serve=serve)
sys.exit(main.main(sys.argv[1:]))
"""
CONFIG = """
nats: {servers: ["nats://127.0.0.1:1"]}
pools: [{name: cpu, directory: /tmp, policy: {namespaces: ["*"]}}]
logging: {format: json}
"""


def start(folder: Path, service: str, before: str = "") -> subprocess.Popen[str]:
    (folder / "submitter.yaml").write_text(CONFIG)
    program = PROGRAM.format(service=service, before=before)
    return subprocess.Popen(
        [sys.executable, "-c", program, "--config", str(folder / "submitter.yaml")],
        cwd=REPO,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(stream: IO[str], words: str) -> None:
    for line in stream:
        if words in line:
            return
    raise AssertionError(f"it never said {words}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_service_end_well(tmp_path: Path, number: int) -> None:
    service = """
    try:
        print("up", flush=True)
        await asyncio.sleep(1000)
    finally:
        await asyncio.sleep(0)
        print("put away", flush=True)
"""
    process = start(tmp_path, service)
    assert process.stdout is not None
    wait_for(process.stdout, "up")
    process.send_signal(number)
    output, log = process.communicate(timeout=20)
    assert (process.returncode, output) == (0, "put away\n")
    assert [json.loads(line)["level"] for line in log.splitlines()] == ["info", "info"]


def test_a_service_that_does_not_end_is_ended(tmp_path: Path) -> None:
    service = """
    import threading
    def hang():
        print("up", flush=True)
        threading.Event().wait()
    await asyncio.get_running_loop().run_in_executor(None, hang)
"""
    process = start(tmp_path, service, before="main.main_loop.STOP_S = 1")
    assert process.stdout is not None
    wait_for(process.stdout, "up")
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "giving up" in log


@pytest.mark.parametrize("code", [0, 3])
def test_the_service_decides_on_the_exit_code(tmp_path: Path, code: int) -> None:
    process = start(tmp_path, f"return {code}")
    process.communicate(timeout=20)
    assert process.returncode == code


def test_a_service_that_fails_is_a_line_in_the_log_and_exit_code_1(tmp_path: Path) -> None:
    process = start(tmp_path, "raise RuntimeError('the disk is gone')")
    _, log = process.communicate(timeout=20)
    last = json.loads(log.splitlines()[-1])
    assert (process.returncode, last["level"]) == (1, "error")
    assert "the disk is gone" in last["exception"]


def test_a_mistake_in_the_configuration_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "submitter.yaml"
    path.write_text("nats: {}\n")
    assert main(["--config", str(path)]) == 2
    expected = f"interlink-submitter: {path}: nats.servers: is missing (and 1 more)\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize(
    ("backend", "words"),
    [("host", "pool cpu: options: cpus: unknown key"), ("slurm", "pool cpu: options: cpus: ")],
)
def test_a_mistake_in_the_options_is_one_line_in_the_log(
    tmp_path: Path, backend: str, words: str
) -> None:
    config = tmp_path / "submitter.yaml"
    config.write_text(
        CONFIG.replace("/tmp,", f"{tmp_path}, backend: {backend}, options: {{cpus: 1}},")
    )
    command = [sys.executable, "-m", "submitter", "--config", str(config)]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    *_, last = (json.loads(line) for line in done.stderr.splitlines())
    assert last["message"].startswith(words)
    assert "Traceback" not in done.stderr


def test_a_file_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", "/nowhere/x.yaml"]) == 2
    line = "interlink-submitter: /nowhere/x.yaml: No such file or directory\n"
    assert capsys.readouterr().err == line


def test_the_sample_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sample"]) == 0
    assert load(capsys.readouterr().out, "sample.yaml") == EXAMPLE


@pytest.mark.parametrize(("option", "words"), [("--version", __version__), ("--help", "sample")])
def test_it_tells_about_itself(option: str, words: str) -> None:
    command = [sys.executable, "-m", "submitter", option]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert words in done.stdout
