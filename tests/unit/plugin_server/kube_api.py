"""The two calls of an API server that the plugin makes, over real TLS, for what the real one cannot
be made to do: hang, lie, break off in the middle of a list. The real one is in tests/kueue."""

from __future__ import annotations

import json
import ssl
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from scripts.lib import certificates

TOKEN = "t0ken-of-the-plugin"
PARTIAL = "as=PartialObjectMetadataList"


class KubeApi:
    """One API server; what a test changes counts from the next call on."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        certificates.make(folder, ("centre",))
        self.ca_file, self.token_file = folder / "ca.pem", folder / "token"
        self.token_file.write_text(f"{TOKEN}\n")
        self.cluster = str(uuid.uuid4())
        self.pods: list[str] = []  # uids
        self.page = 2
        self.answers: dict[str, tuple[int, Any]] = {}  # path -> what is said instead
        self.paths: list[str] = []
        self.lists = 0  # that came to their end
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, content = api.answer(self.path, self.headers)
                raw = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(folder / "cert.pem", folder / "key.pem")
        self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_port}"

    def answer(self, path: str, headers: Any) -> tuple[int, Any]:
        self.paths.append(path)
        if headers["Authorization"] != f"Bearer {self.token_file.read_text().strip()}":
            return 401, {"kind": "Status", "message": "Unauthorized"}
        where = urlsplit(path)
        if where.path in self.answers:
            return self.answers[where.path]
        if where.path == "/api/v1/namespaces/kube-system":
            return 200, {"metadata": {"name": "kube-system", "uid": self.cluster}}
        assert where.path == "/api/v1/pods", path
        assert PARTIAL in headers["Accept"]
        return 200, self._list(parse_qs(where.query))

    def _list(self, query: dict[str, list[str]]) -> dict[str, Any]:
        start = int(query.get("continue", ["0"])[0])
        items = [{"metadata": {"uid": uid}} for uid in self.pods[start : start + self.page]]
        metadata = {"resourceVersion": "7"}
        if start + self.page < len(self.pods):
            metadata["continue"] = str(start + self.page)
        else:
            self.lists += 1
        return {"kind": "PartialObjectMetadataList", "metadata": metadata, "items": items or None}

    def __enter__(self) -> KubeApi:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
