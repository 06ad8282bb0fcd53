"""The edge to a cluster: credentials that run out (a real one: tests/sites/kubernetes)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from submitter.backends.kubernetes.client import Api
from submitter.common.errors import BackendUnavailable

ASKED: list[str] = []


class _Server(BaseHTTPRequestHandler):
    """Knows one token, and one pod."""

    def do_GET(self) -> None:
        token = self.headers.get("Authorization", "")
        ASKED.append(token)
        status = 200 if token == "Bearer second" else 401
        body = json.dumps({"kind": "Pod"} if status == 200 else {"message": "who are you?"})
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    ASKED.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), _Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        file = tmp_path / "kubeconfig"
        cluster = {"server": f"http://127.0.0.1:{server.server_port}"}
        content = {
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"tokenFile": str(tmp_path / "token")}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        (tmp_path / "token").write_text("first")
        file.write_text(json.dumps(content))
        yield file
        server.shutdown()


def test_a_token_that_is_refused_is_read_again(kubeconfig: Path) -> None:
    api = Api(str(kubeconfig), "here", "pool p: options")
    with pytest.raises(BackendUnavailable, match="who are you"):
        api.get("pods", "x")
    (kubeconfig.parent / "token").write_text("second")
    assert api.get("pods", "x") == {"kind": "Pod"}
    assert api.get("pods", "x") == {"kind": "Pod"}
    assert ASKED == ["Bearer first"] * 3 + ["Bearer second"] * 2


def test_credentials_that_are_gone_when_they_are_read_again(kubeconfig: Path) -> None:
    api = Api(str(kubeconfig), "here", "pool p: options")
    kubeconfig.write_text("{")
    with pytest.raises(BackendUnavailable, match="pool p: options: kubeconfig"):
        api.get("pods", "x")
