"""The whole path of a pod on this machine: plugin under gunicorn, NATS over wss, a submitter.

Started by scripts/quickstart, which has made the Python environment for it. All of it are the real
programs, on free ports of localhost, below one temporary directory.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

from scripts.lib import certificates
from scripts.lib.families import kill_families
from scripts.lib.interlink import (
    Answer,
    Plugin,
    create_request,
    free_port,
    is_up,
    log_request,
)
from templates.cli import nats_site
from templates.common.errors import InterlinkNatsError
from templates.nats.permissions import inbox_of
from templates.nats.subjects import PLUGIN

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
POOL = "quickstart"
APPLICATION = "plugin_server.wsgi:app"
SILENT = (OSError, http.client.HTTPException, Answer)  # what the plugin's end looks like
START_S = 30
STOP_S = 15


class Trouble(Exception):
    """An error that ends the quickstart, in words."""


def say(text: str) -> None:
    """Tell the person in front of it."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="scripts/quickstart", description=__doc__.splitlines()[0])
    parser.add_argument("manifest", nargs="?", metavar="POD.yaml", type=Path, help="a Pod or a Job")
    parser.add_argument("--keep", action="store_true", help="leave it running until Ctrl-C")
    parser.add_argument("--port", type=int, default=0, help="of the plugin (default: a free one)")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if not 0 <= arguments.port < 65536:
            raise Trouble(f"--port {arguments.port}: a port is a number from 1 to 65535")
        request = _request(arguments.manifest or HERE / "quickstart.yaml")
        with System(arguments.port) as system:
            system.start()
            with _created(system, request):
                code = follow(system, request["pod"])
                if arguments.keep:
                    system.keep(request["pod"])
        return code
    except KeyboardInterrupt:
        say("quickstart: interrupted; everything it started is stopped")
        return 130
    except (Trouble, InterlinkNatsError) as error:
        sys.stderr.write(f"quickstart: {error}\n")
        return 2


def _request(manifest: Path) -> dict[str, Any]:
    try:
        return create_request([(str(manifest), manifest.read_text(encoding="utf-8"))], POOL)
    except UnicodeDecodeError:
        raise Trouble(f"{manifest}: is not UTF-8 text") from None
    except OSError as error:
        raise Trouble(f"{manifest}: {error.strerror}") from None


# --- the programs -------------------------------------------------------------------------------


class System:
    """The three programs, and the directory that they share."""

    def __init__(self, port: int = 0) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="interlink-quickstart-"))
        self.port = port or free_port()
        self.nats_port = free_port()
        self.plugin = Plugin("127.0.0.1", self.port)
        self._processes: list[tuple[str, subprocess.Popen[bytes]]] = []

    def __enter__(self) -> System:
        return self

    def __exit__(self, *_: object) -> None:
        with _uninterrupted():
            self.stop()

    def start(self) -> None:
        if is_up("127.0.0.1", self.port):
            raise Trouble(f"port {self.port} is in use: choose another with --port")
        self._write_configuration()
        python = sys.executable
        say("starting nats-server (TLS WebSockets)")
        server = shutil.which("nats-server", path=str(Path(python).parent))
        conf = str(self.folder / "nats" / "nats-server.conf")
        self._run("nats", [server or "nats-server", "--config", conf])
        self._wait("nats", lambda: is_up("localhost", self.nats_port))
        say(f"starting the submitter of pool {POOL} (it runs jobs on this machine)")
        self._run(
            "submitter",
            [python, "-m", "submitter", "--config", str(self.folder / "submitter.yaml")],
        )
        say(f"starting the plugin at http://127.0.0.1:{self.port}")
        self._run(
            "plugin",
            [
                python,
                "-m",
                "gunicorn",
                "--config",
                "python:plugin_server.gunicorn_conf",
                APPLICATION,
            ],
            INTERLINK_PLUGIN_CONFIG=str(self.folder / "plugin.yaml"),
        )
        self._wait("plugin", self._has_pool)

    def _has_pool(self) -> bool:
        with contextlib.suppress(OSError, Answer, ValueError):
            return "cpu" in self.plugin.ping().get("resources", {})
        return False

    def _write_configuration(self) -> None:
        certificates.make(self.folder)
        (self.folder / "jobs").mkdir(mode=0o700)
        self._make_users()
        pool = {
            "name": POOL,
            "backend": "host",
            "directory": f"{self.folder}/jobs",
            "policy": {"namespaces": ["*"]},  # nobody else's pods come here
        }
        address = f"http://127.0.0.1:{self.port}"
        for name, content in {
            "submitter.yaml": {"nats": self._nats_settings(POOL), "pools": [pool]},
            "plugin.yaml": {"nats": self._nats_settings(PLUGIN), "listen": address},
        }.items():
            (self.folder / name).write_text(json.dumps(content, indent=2))  # JSON is YAML

    def _make_users(self) -> None:
        """Make the server's files as for any server: the site is called as its pool."""
        nats = str(self.folder / "nats")
        where = ["--host", "localhost", "--port", str(self.nats_port)]
        where += ["--listen", f"127.0.0.1:{free_port()}", "--monitor", f"127.0.0.1:{free_port()}"]
        tls = ["--cert", f"{self.folder}/cert.pem", "--key", f"{self.folder}/key.pem"]
        with contextlib.redirect_stdout(io.StringIO()):
            nats_site.main(["init", nats, *where, *tls])
            nats_site.main(["add", POOL, POOL, "--dir", nats])
            nats_site.main(["open", POOL, "--dir", nats])

    def _nats_settings(self, user: str) -> dict[str, Any]:
        return {
            "servers": [f"wss://localhost:{self.nats_port}"],
            "ca_file": f"{self.folder}/ca.pem",
            "inbox_prefix": inbox_of(user),
            "nkey_file": f"{self.folder}/nats/credentials/{user}.nkey",
        }

    def _run(self, name: str, command: list[str], **environment: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=REPOSITORY,
                env={**os.environ, "PYTHONPATH": str(REPOSITORY), **environment},
                start_new_session=True,  # Ctrl-C is for us, and we end them in order
            )
        self._processes.append((name, process))

    def _wait(self, name: str, ready: Callable[[], bool]) -> None:
        end = time.monotonic() + START_S
        while not ready():
            self.check("while starting")
            if time.monotonic() > end:
                raise Trouble(f"{name} is not ready after {START_S} s: {self._last_line(name)}")
            time.sleep(0.05)

    def check(self, when: str = "too early") -> None:
        """Raise ``Trouble`` unless all of them are there."""
        for name, process in self._processes:
            if process.poll() is not None:
                raise Trouble(f"{name} ended {when}: {self._last_line(name)}")

    def _last_line(self, name: str) -> str:
        lines = (self.folder / f"{name}.log").read_text(errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "it said nothing")

    def stop(self) -> None:
        for _, process in reversed(self._processes):
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_S)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # also a worker that its gunicorn has left
            process.wait()
        kill_families(self.folder, STOP_S)  # a job of which no submitter took care any more
        self.plugin.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def keep(self, pod: dict[str, Any]) -> None:
        """Say how to talk to it, until somebody has had enough of it."""
        container = pod["spec"]["containers"][0]["name"]
        asked = {
            "pods.json": [pod],
            "pod.json": pod,
            "log.json": log_request(pod, container),
        }
        for name, content in asked.items():
            (self.folder / name).write_text(json.dumps(content))
        get, url = "curl -s -X GET --data", f"http://127.0.0.1:{self.port}"
        say(f"""
It stays up until Ctrl-C. Its logs and configuration are in {self.folder}
  states of the pod:  {get} @{self.folder}/pods.json {url}/status
  log of {container + ":":12} {get} @{self.folder}/log.json {url}/getLogs
  delete the pod:     curl -s --data @{self.folder}/pod.json {url}/delete
  what the node is:   {get} '[]' {url}/status
  metrics:            curl -s {url}/metrics""")
        while True:
            self.check()
            time.sleep(1)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """A second Ctrl-C must not leave half of it running."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


# --- the pod ------------------------------------------------------------------------------------


@contextlib.contextmanager
def _created(system: System, request: dict[str, Any]) -> Iterator[None]:
    """The pod, from its creation to its deletion."""
    pod, plugin = request["pod"], system.plugin
    name = pod["metadata"]["name"]
    try:
        answer = plugin.create(request)
    except Answer as refused:
        raise Trouble(f"pod {name} was refused: {refused.text}") from None
    say(f"pod {name} is job {answer['PodJID']}")
    try:
        yield
    except SILENT as error:
        system.check()
        raise Trouble(f"the plugin does not answer: {error}") from None
    finally:
        with _uninterrupted(), contextlib.suppress(*SILENT):
            plugin.delete(pod)
            _until_gone(plugin, pod)


def follow(system: System, pod: dict[str, Any]) -> int:
    """Show what becomes of the pod; the exit code is the pod's."""
    states = _watch(system, pod)
    say("exit codes:")
    for _, container in states:
        say(f"  {container['name']:20} {container['state']['terminated']['exitCode']}")
    codes = [container["state"]["terminated"]["exitCode"] for _, container in states]
    return next((code for code in codes if code), 0)


def _watch(system: System, pod: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Show each change of state, and the logs as they come, until all containers have ended."""
    plugin = system.plugin
    shown: dict[str, str] = {}
    readers: dict[str, threading.Thread] = {}
    mains = [container["name"] for container in pod["spec"]["containers"]]
    while True:
        system.check()
        states = _states(plugin, pod)
        for kind, container in states:
            text = _describe(container["state"])
            if shown.get(container["name"]) != text:
                shown[container["name"]] = text
                say(f"{kind:6} {container['name']:20} {text}")
            if "waiting" not in container["state"] and container["name"] not in readers:
                readers[container["name"]] = _reader(plugin, pod, container["name"])
        if states and all("terminated" in container["state"] for _, container in states):
            for reader in readers.values():
                reader.join()
            if {container["name"] for _, container in states} >= set(mains):
                return states
        time.sleep(0.1)


def _states(plugin: Plugin, pod: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    for status in plugin.status([pod]):
        inits = [("init", container) for container in status.get("initContainers") or []]
        return [*inits, *(("main", container) for container in status["containers"])]
    return []


def _describe(state: dict[str, Any]) -> str:
    if "terminated" in state:
        end = state["terminated"]
        message = end.get("message", "").strip()
        return f"terminated, exit code {end['exitCode']}" + (f": {message}" if message else "")
    if "running" in state:
        return "running"
    waiting = state.get("waiting", {})
    message = waiting.get("message", "")
    return f"waiting: {waiting.get('reason', '')}" + (f" ({message})" if message else "")


def _reader(plugin: Plugin, pod: dict[str, Any], container: str) -> threading.Thread:
    """Print a log, line by line, as ``kubectl logs -f`` would."""

    def read() -> None:
        rest = b""
        with contextlib.suppress(*SILENT):  # who watches the states says so
            for piece in plugin.logs(pod, container, Follow=True):
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    say(f"  {container} | {line.decode(errors='replace')}")
        if rest:
            say(f"  {container} | {rest.decode(errors='replace')}")

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


def _until_gone(plugin: Plugin, pod: dict[str, Any]) -> None:
    """Wait until the site has removed what the job left."""
    end = time.monotonic() + STOP_S
    while time.monotonic() < end:
        if not plugin.status([pod]):
            return
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
