"""Stands between interLink's API server and the plugin, and keeps what interLink sends.

    python -m scripts.lib.bed.recorder DIR PORT PLUGIN_PORT

Whatever comes in at PORT goes on to PLUGIN_PORT, and the answer back. Of each create, delete and
log request there is a file in DIR, of what the virtual kubelet asks again and again the first one
for each phase of a pod. Tokens and certificates are blanked, the rest is as it came, also the data
of ConfigMaps and Secrets: the files are for their owner only.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HERE = "127.0.0.1"
PIECE = 65536
# What stays on one side: each connection has headers of its own for how it carries a body.
OWN = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}
BLANKED = (
    (re.compile(r"\beyJ[\w-]*\.[\w-]+\.[\w-]+"), "HEADER.PAYLOAD.SIGNATURE"),
    (
        re.compile(r"(-----BEGIN CERTIFICATE-----\n).*?(\n-----END CERTIFICATE-----)", re.DOTALL),
        r"\1MIIB\2",
    ),
)


def blanked(value: Any) -> Any:
    """The same without what would let others in."""
    if isinstance(value, dict):
        return {key: blanked(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [blanked(inner) for inner in value]
    if isinstance(value, str):
        for pattern, instead in BLANKED:
            value = pattern.sub(instead, value)
    return value


def name_of(path: str, body: Any) -> str:
    """Return the subject of a request, as the name of a file."""
    kind = path.partition("?")[0].strip("/")
    if kind == "status" and not body:
        return "ping"
    try:
        words = _words(kind, body)
    except (KeyError, TypeError, IndexError):
        words = ["unknown"]
    return re.sub(r"[^\w.-]", "_", "-".join([kind, *map(str, words)]))[:200]


def _words(kind: str, body: Any) -> list[str]:
    if kind == "create":
        return [body["pod"]["metadata"]["name"]]
    if kind == "status":
        return [body[0]["metadata"]["name"], body[0]["status"]["phase"].lower()]
    if kind == "getLogs":
        return [body["PodName"], body["ContainerName"]]
    return [body["metadata"]["name"]]


class Recordings:
    """The files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()

    def keep(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        """Write a request down, unless there is one like it."""
        try:
            content = json.loads(body) if body else None
        except ValueError:
            content = body.decode(errors="replace")
        name = name_of(path, content)
        shown = {key: value for key, value in headers.items() if key.lower() != "host"}
        kept = {"method": method, "path": path, "headers": shown, "body": content}
        text = json.dumps(blanked(kept), indent=1) + "\n"
        with self._lock:
            target, number = self._folder / f"{name}.json", 1
            while target.exists():
                if name == "ping" or name.startswith("status-"):
                    return
                number += 1
                target = self._folder / f"{name}-{number}.json"
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)


class Handler(BaseHTTPRequestHandler):
    """One connection of interLink's."""

    protocol_version = "HTTP/1.1"
    recordings: Recordings
    plugin_port: int

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = dict(self.headers.items())
        self.recordings.keep(self.command, self.path, headers, body)
        plugin = http.client.HTTPConnection(HERE, self.plugin_port)
        try:
            own = {key: value for key, value in headers.items() if key.lower() not in OWN}
            plugin.request(self.command, self.path, body, own)
            self._pass_back(plugin.getresponse())
        except (OSError, http.client.HTTPException):
            self.close_connection = True  # what interLink sees when the plugin dies
        finally:
            plugin.close()

    do_GET = do_POST = do_DELETE = _pass_on  # noqa: N815 - names of http.server's

    def _pass_back(self, answer: http.client.HTTPResponse) -> None:
        """The answer as it comes: a log may go on for hours."""
        self.send_response(answer.status)
        for key, value in answer.getheaders():
            if key.lower() not in {*OWN, "server", "date"}:
                self.send_header(key, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while piece := answer.read1(PIECE):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_: object) -> None:
        """Nothing: the recordings say it."""


def recorder(folder: Path, port: int, plugin_port: int) -> ThreadingHTTPServer:
    """A server that has yet to be told to serve; with port 0 it finds one."""
    Handler.recordings, Handler.plugin_port = Recordings(folder), plugin_port
    server = ThreadingHTTPServer((HERE, port), Handler)
    server.daemon_threads = True
    return server


if __name__ == "__main__":
    recorder(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])).serve_forever()
