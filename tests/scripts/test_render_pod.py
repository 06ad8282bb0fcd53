"""The command line: a pod in, its script, its files or its run out; mistakes in one line."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Optional

import pytest
import yaml

from templates.cli.render_pod import main
from tests.support.processes import MARK
from tests.support.script_runner import REPOSITORY, config_map, pod, sh

HELLO = REPOSITORY / "tests" / "data" / "pods" / "hello.yaml"
RECORDED = REPOSITORY / "tests" / "data" / "recordings" / "0.6.2" / "create-plain.json"


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "templates.cli.render_pod", *map(str, arguments)]


def environment(temporary: Optional[Path] = None) -> dict[str, str]:
    more = {} if temporary is None else {"TMPDIR": str(temporary)}
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), **more}


def render(
    *arguments: object, stdin: str = "", temporary: Optional[Path] = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        input=stdin,
        capture_output=True,
        text=True,
        env=environment(temporary),
        cwd="/",
        timeout=120,
        check=False,
    )


def render_here(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The same in this very process, where nothing is run."""
    words = list(map(str, arguments))
    with redirect_stdout(StringIO()) as output, redirect_stderr(StringIO()) as errors:
        try:
            code = main(words)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
    return subprocess.CompletedProcess(words, code, output.getvalue(), errors.getvalue())


def manifest(folder: Path, *documents: object) -> Path:
    path = folder / "pod.yaml"
    path.write_text(yaml.safe_dump_all(documents, allow_unicode=True))
    return path


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    """What a mistake is answered with."""
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("render-pod: ")
    return lines[0]


# --- printing and writing ------------------------------------------------------------------------


def test_a_manifest_is_printed_as_its_script() -> None:
    done = render(HELLO)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("#!/bin/bash\n")
    checked = subprocess.run(
        ["bash", "-n"], input=done.stdout, text=True, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_a_manifest_can_come_from_standard_input() -> None:
    assert render("-", stdin=HELLO.read_text()).stdout == render(HELLO).stdout


def test_a_request_of_interlinks_is_printed_too(tmp_path: Path) -> None:
    recorded = render(RECORDED)
    assert (recorded.returncode, recorded.stderr) == (0, "")
    body = json.loads(RECORDED.read_text())
    bare = tmp_path / "request.json"
    bare.write_text(json.dumps(body.get("body", body)))
    assert render(bare).stdout == recorded.stdout


def test_config_maps_may_stand_in_a_file_of_their_own(tmp_path: Path) -> None:
    mount = {"name": "cfg", "mountPath": "/etc/app"}
    main = manifest(
        tmp_path,
        pod(
            sh("true", volumeMounts=[mount]),
            volumes=[{"name": "cfg", "configMap": {"name": "cfg"}}],
        ),
    )
    other = tmp_path / "cfg.yaml"
    other.write_text(yaml.safe_dump(config_map("cfg", data={"a": "from the other file"})))
    directory = tmp_path / "job"
    assert render(main, other, "--output", directory).returncode == 0
    written = [path for path in directory.rglob("*") if path.is_file()]
    assert any(b"from the other file" in path.read_bytes() for path in written)


@pytest.mark.parametrize("runtime", ["apptainer", "singularity", "podman", "host"])
def test_the_runtime_can_be_chosen(runtime: str) -> None:
    done = render(HELLO, "--runtime", runtime)
    assert done.returncode == 0
    assert re.search(rf"^RUNTIME={runtime}\b", done.stdout, re.MULTILINE)


def test_the_sites_configuration_counts(tmp_path: Path) -> None:
    config = tmp_path / "build.yaml"
    config.write_text("runtime: {name: apptainer, executable: /opt/a/apptainer}\n")
    done = render(HELLO, "--config", config)
    assert "/opt/a/apptainer" in done.stdout
    other = render(HELLO, "--config", config, "--runtime", "podman")
    assert "/opt/a/apptainer" not in other.stdout


def test_the_jobs_directory_is_written_for_nobody_else(tmp_path: Path) -> None:
    directory = tmp_path / "jobs" / "hello"
    done = render(HELLO, "--output", directory)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (directory / "job.sh").read_text() == render(HELLO).stdout
    assert os.access(directory / "job.sh", os.X_OK)
    assert (directory / "secret" / "pod.sh").exists()
    for path in (directory, directory / "secret", directory / "secret" / "pod.sh"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    ran = subprocess.run(["bash", str(directory / "job.sh")], check=False, timeout=60)
    assert ran.returncode == 0


# --- mistakes ------------------------------------------------------------------------------------


def test_a_file_that_is_not_there_is_named() -> None:
    assert one_line(render("/no/such/pod.yaml")) == (
        "render-pod: /no/such/pod.yaml: No such file or directory"
    )


def test_a_directory_is_no_manifest(tmp_path: Path) -> None:
    assert str(tmp_path) in one_line(render(tmp_path))


def test_a_directory_that_is_there_is_not_written_into(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    assert "exists" in one_line(render(HELLO, "--output", tmp_path / "job"))
    assert list((tmp_path / "job").iterdir()) == []


@pytest.mark.parametrize(
    "text",
    [
        "kind: Pod\n  metadata: [",
        "{",
        "[]",
        "",
        "just words",
        "kind: Service\napiVersion: v1\nmetadata: {name: x}\n",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: []}\n",
        '{"pod": 5, "container": []}',
        "a: !!python/object/apply:os.system [id]\n",
        "&a [*a]",
        "\t\x00",
    ],
)
def test_what_is_no_pod_is_answered_with_one_line_that_names_the_file(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    assert one_line(render_here(path))


def test_bytes_that_are_no_text_are_answered_with_one_line(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    assert str(path) in one_line(render_here(path))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("images: {cahce: /x}", "cahce"),
        ("runtime: {name: docker}", "runtime.name"),
        ("runtime: [", "build.yaml"),
    ],
)
def test_a_wrong_configuration_is_answered_with_one_line(
    tmp_path: Path, text: str, word: str
) -> None:
    path = tmp_path / "build.yaml"
    path.write_text(text)
    assert word in one_line(render_here(HELLO, "--config", path))


@pytest.mark.parametrize(
    "arguments", [(), (HELLO, "--unknown"), (HELLO, "--runtime", "docker"), (HELLO, "--config")]
)
def test_a_wrong_command_line_is_answered_with_the_usage(arguments: tuple[object, ...]) -> None:
    done = render_here(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: render-pod")
    assert "Traceback" not in done.stderr


def test_a_reader_that_goes_away_is_no_reason_for_a_traceback() -> None:
    process = subprocess.Popen(
        command(HELLO), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr as errors:
        assert b"Traceback" not in errors.read()
    assert process.wait(60) != 0


# --- running -------------------------------------------------------------------------------------


def test_a_run_shows_states_as_they_change_then_logs(tmp_path: Path) -> None:
    path = manifest(
        tmp_path,
        pod(
            sh("echo out; echo err >&2; sleep 0.5; exit 3"),
            sh("echo second"),
            initContainers=[
                {"name": "prep", "image": "busybox:1.36", **sh("sleep 0.5; echo ready")}
            ],
        ),
    )
    done = render(path, "--run", temporary=tmp_path)
    assert (done.returncode, done.stderr) == (3, ""), done
    states, _, logs = done.stdout.partition("--- log of")
    rows = [re.split(r"\s{2,}", line) for line in states.splitlines()]
    assert ["main", "c0", "waiting PodInitializing"] in [row[:3] for row in rows]
    prep = [line for line in states.splitlines() if line.startswith("init ")]
    assert "waiting" in prep[0] or "running" in prep[0]
    assert re.search(r"terminated Completed exit 0 after \d+\.\d s$", prep[-1])
    c0 = [line for line in states.splitlines() if " c0 " in line]
    assert re.search(r"terminated Error exit 3 after \d+\.\d s$", c0[-1])
    assert states.index(prep[-1]) < states.index(c0[-1])
    assert "out\nerr\n" in logs
    assert " prep, start 0\nready\n" in logs


def test_a_run_leaves_nothing_behind(tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    path = manifest(tmp_path, pod(sh("exit 4")))
    assert render(path, "--run", temporary=temporary).returncode == 4
    assert list(temporary.iterdir()) == []


def test_a_run_can_keep_its_directory(tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    path = manifest(tmp_path, pod(sh("echo kept")))
    done = render(path, "--run", "--keep", temporary=temporary)
    named = re.search(r"the job's directory is (.*)\n", done.stderr)
    assert named is not None
    assert (Path(named[1]) / "logs" / "c0.0.log").read_text() == "kept\n"
    assert Path(named[1]).is_relative_to(temporary)


def test_a_pod_that_is_refused_is_not_run(tmp_path: Path) -> None:
    path = manifest(tmp_path, pod({"image": "busybox:1.36"}))
    assert "command" in one_line(render(path, "--run", "--runtime", "host", temporary=tmp_path))


def endless(folder: Path) -> Path:
    """A pod that runs until it is told to end, and its processes can be found."""
    script = (
        "trap 'echo told; exit 7' TERM; (setsid sleep 600 &); echo up; while :; do sleep 0.1; done"
    )
    mark = {"env": [{"name": MARK, "value": folder.name}]}
    return manifest(folder, pod(sh(script, **mark), terminationGracePeriodSeconds=5))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("times", [1, 3])
def test_ctrl_c_ends_the_pod_and_leaves_nothing(
    tmp_path: Path, number: signal.Signals, times: int
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    path = endless(tmp_path)
    output = tmp_path / "output"
    with output.open("wb") as file:
        process = subprocess.Popen(
            # Who runs the tests under nohup, or in the background, has it ignored.
            ["env", f"--default-signal={number.name[3:]}", *command(path, "--run")],
            stdout=file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment(temporary),
        )
    wait_for(lambda: "running" in output.read_text())
    wait_for(lambda: any("up" in log.read_text() for log in temporary.rglob("c0.0.log")))
    for _ in range(times):
        process.send_signal(number)
        time.sleep(0.05)
    assert process.wait(60) == 7, output.read_text()
    text = output.read_text()
    assert "ending the pod" in text
    assert "terminated Error exit 7" in text
    assert "told\n" in text
    assert "Traceback" not in text
    assert list(temporary.iterdir()) == []
    wait_for(lambda: not marked_processes(tmp_path.name))


def test_a_run_whose_reader_goes_away_ends_the_pod_and_leaves_nothing(tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    process = subprocess.Popen(
        command(endless(tmp_path), "--run"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env=environment(temporary),
    )
    assert process.stdout is not None
    process.stdout.readline()  # it waits; the next one will be that it runs
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr as errors:
        assert b"Traceback" not in errors.read()
    assert process.wait(60) != 0
    assert list(temporary.iterdir()) == []
    wait_for(lambda: not marked_processes(tmp_path.name))


def test_a_message_of_several_lines_stands_below_the_state(tmp_path: Path) -> None:
    path = manifest(tmp_path, pod(sh("printf 'one\\ntwo\\n' >/dev/termination-log; exit 2")))
    done = render(path, "--run", temporary=tmp_path)
    assert re.search(r" exit 2 after \d+\.\d s: one\n {30}two\n--- log of c0", done.stdout), done


def wait_for(condition: object, seconds: float = 60) -> None:
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)


def marked_processes(mark: str) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                found.append(entry.name)
        except OSError:
            continue
    return found
