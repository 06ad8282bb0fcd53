"""``render-pod``: show, or run here, the job that a pod becomes.

It touches files and processes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Optional

from templates.common.errors import ConfigError, InterlinkNatsError
from templates.job.directory import write_job
from templates.job.model import Job
from templates.job.records import RUNNING, TERMINATED, ContainerState, JobState, fold, parse_lines
from templates.pod.create_request import read_create_request
from templates.pod.model import Pod
from templates.pod.user_manifests import read_manifests
from templates.site.build_config import RUNTIMES, BuildConfig
from templates.site.file import load
from templates.translation.build import build


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command line; return the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        job = build(_read_pod(arguments.files), _read_config(arguments))
        if arguments.output is not None:
            write_job(job, arguments.output)
        elif arguments.run:
            return _run(job, arguments.keep)
        else:
            sys.stdout.write(job.script)
    except InterlinkNatsError as error:
        sys.stderr.write(f"render-pod: {error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"render-pod: {error.filename or 'output'}: {error.strerror}\n")
        return 2
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="render-pod",
        description="Print the job script of a pod, or run it here as a site would.",
    )
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="manifests with one Pod or Job and its ConfigMaps and Secrets (- for standard input), "
        "or one create request of interLink",
    )
    parser.add_argument(
        "--config", metavar="FILE", help="the site's BuildConfig (default: defaults)"
    )
    parser.add_argument("--runtime", choices=RUNTIMES, help="instead of the configuration's")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--run", action="store_true", help="run it here and show what kubectl would")
    mode.add_argument("--output", metavar="DIR", type=Path, help="write the job's directory there")
    parser.add_argument("--keep", action="store_true", help="with --run: keep the job's directory")
    return parser


def _read(name: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError(name, "is not UTF-8 text") from None


def _read_pod(names: Sequence[str]) -> Pod:
    texts = [(name, _read(name)) for name in names]
    if len(texts) == 1 and texts[0][1].lstrip().startswith(("{", "[")):
        try:
            document = json.loads(texts[0][1])
        except ValueError:
            document = None  # YAML can start so too
        if isinstance(document, dict) and "body" in document:  # a recorded request
            document = document["body"]
        first = document[0] if isinstance(document, list) and document else document
        if isinstance(first, dict) and "pod" in first:
            return read_create_request(json.dumps(document).encode())
    return read_manifests(texts)


def _read_config(arguments: argparse.Namespace) -> BuildConfig:
    config = BuildConfig()
    if arguments.config:
        config = load(_read(arguments.config), arguments.config)
    if arguments.runtime and arguments.runtime != config.runtime.name:
        config = replace(
            config, runtime=replace(config.runtime, name=arguments.runtime, executable="")
        )
    return config


def _run(job: Job, keep: bool) -> int:
    signals = _record_signals()
    parent = Path(tempfile.mkdtemp(prefix="render-pod-"))
    directory = parent / job.name
    try:
        write_job(job, directory)
        code = _follow(job, directory, signals)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _show_logs(job, directory)
        return code
    finally:
        if keep:
            sys.stderr.write(f"render-pod: the job's directory is {directory}\n")
        else:
            shutil.rmtree(parent, ignore_errors=True)


def _record_signals() -> list[int]:
    """Return a list to which signals that end this program are added from now on."""
    received: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, lambda number, _: received.append(number))
    return received


def _follow(job: Job, directory: Path, signals: list[int]) -> int:
    """Run the script, and print each change of state; Ctrl-C ends the pod as a deletion would."""
    shown: dict[str, str] = {}
    process = subprocess.Popen(
        ["bash", str(directory / "job.sh"), str(directory), str(directory / "spool")],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        while True:
            done = process.poll() is not None
            _show_changes(job, _state(directory), shown)
            if done:
                return process.returncode if process.returncode >= 0 else 128 - process.returncode
            if signals:
                signals.clear()
                sys.stderr.write("render-pod: ending the pod (TERM, its grace period, KILL)\n")
                process.send_signal(signal.SIGTERM)
            time.sleep(0.1)
    finally:  # also when standard output is closed
        process.send_signal(signal.SIGTERM)
        process.wait()


def _state(directory: Path) -> JobState:
    records = directory / "records"
    return fold(parse_lines(records.read_bytes())) if records.exists() else JobState()


def _show_changes(job: Job, state: JobState, shown: dict[str, str]) -> None:
    for name, kind, _ in job.containers:
        container = state.containers.get(name, ContainerState(name))
        text = describe(container)
        if shown.get(name) != text:
            shown[name] = text
            below = "\n" + " " * 30  # where the states stand
            sys.stdout.write(f"{kind:8} {name:20} {text.rstrip().replace(chr(10), below)}\n")
    if state.message and shown.get("") != state.message:
        shown[""] = state.message
        sys.stdout.write(f"pod      {state.message}\n")
    sys.stdout.flush()


def describe(state: ContainerState) -> str:
    """Return a container's state on one line, in kubectl's words."""
    restarts = f", restarts {state.restarts}" if state.restarts else ""
    if state.state == TERMINATED and state.end is not None:
        end = state.end
        seconds = (end.finished_ms - end.started_ms) / 1000
        message = f": {end.message}" if end.message else ""
        return (
            f"terminated {end.reason} exit {end.exit_code} after {seconds:.1f} s{restarts}{message}"
        )
    if state.state == RUNNING:
        return f"running{'' if state.ready else ' (not ready)'}{restarts}"
    message = f": {state.message}" if state.message else ""
    return f"waiting {state.reason or 'PodInitializing'}{restarts}{message}"


def _show_logs(job: Job, directory: Path) -> None:
    for name, _, _ in job.containers:
        for log in sorted(directory.glob(f"logs/{name}.*.log"), key=_instance):
            sys.stdout.write(f"--- log of {name}, start {_instance(log)}\n")
            sys.stdout.flush()
            with log.open("rb") as content:
                shutil.copyfileobj(content, sys.stdout.buffer)
            sys.stdout.buffer.flush()


def _instance(log: Path) -> int:
    return int(log.name.rsplit(".", 2)[1])


if __name__ == "__main__":
    sys.exit(main())
