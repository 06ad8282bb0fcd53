"""What the Kubernetes API answers, as our errors say it; what a real one does is in tests/kueue."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kueue_nats.kube.client import KueueClient, connect
from kueue_nats.spec.errors import (
    Conflicting,
    KueueClientError,
    NotAllowed,
    NotFound,
    Rejected,
    Unreachable,
)
from templates.common.errors import ConfigError

TOKEN = "hidden-token"


class Server(http.server.ThreadingHTTPServer):
    """An API server that says what a test wants, and keeps what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status, self.body = 200, b"{}"
        self.asked: list[tuple[str, str, Any, dict[str, str]]] = []

    def says(self, status: int, message: str) -> None:
        self.status, self.body = status, json.dumps({"message": message}).encode()

    def config(self, folder: Path) -> str:
        path = folder / "kubeconfig"
        url = f"http://127.0.0.1:{self.server_address[1]}"
        content = {
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "users": [{"name": "u", "user": {"token": TOKEN}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path.write_text(yaml.safe_dump(content))
        return str(path)


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def _answer(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else None
        self.server.asked.append((self.command, self.path, body, dict(self.headers)))
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, format: str, *args: object) -> None:
        pass


for verb in ("GET", "POST", "PUT", "PATCH", "DELETE"):
    setattr(Handler, f"do_{verb}", Handler._answer)


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    thread = threading.Thread(target=found.serve_forever, args=(0.01,))
    thread.start()
    yield found
    found.shutdown()
    thread.join()
    found.server_close()


@pytest.fixture
def cluster(server: Server, tmp_path: Path) -> KueueClient:
    return connect(server.config(tmp_path))


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (401, "Unauthorized", NotAllowed),
        (403, "resourceflavors is forbidden: no", NotAllowed),
        (404, "not found", NotFound),
        (409, "the object has been modified", Conflicting),
        (400, "strict decoding error", Rejected),
        (422, "ClusterQueue is invalid", Rejected),
        (403, 'admission webhook "vclusterqueue.kb.io" denied the request: no', Rejected),
        (500, 'failed calling webhook "x": connection refused', Unreachable),
        (429, "too many requests", Unreachable),
        (503, "shutting down", Unreachable),
    ],
)
def test_every_status_has_its_meaning_and_its_words(
    server: Server, cluster: KueueClient, status: int, message: str, kind: type[KueueClientError]
) -> None:
    server.says(status, f"{message}\n")
    body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue"}
    with pytest.raises(KueueClientError) as caught:
        cluster.apply("clusterqueues", {**body, "metadata": {"name": "q"}})
    assert type(caught.value) is kind
    assert str(caught.value) == f"ClusterQueue q: {message}"


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff", b"[]", b'"x"'])
def test_an_answer_that_is_no_object_is_an_error(
    server: Server, cluster: KueueClient, body: bytes
) -> None:
    server.body = body
    with pytest.raises(KueueClientError, match=r"listing masterqueues\.vk\.io: "):
        cluster.masters()
    server.status = 502
    with pytest.raises(Unreachable, match="status 502"):
        cluster.masters()


def test_nobody_there_is_unreachable(server: Server, tmp_path: Path) -> None:
    config = server.config(tmp_path).replace("kubeconfig", "other")
    Path(config).write_text(
        Path(server.config(tmp_path)).read_text().replace(str(server.server_address[1]), "1")
    )
    with pytest.raises(Unreachable) as caught:
        connect(config).masters()
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize(
    ("served", "version"),
    [(["v1beta1", "v1beta2"], "v1beta2"), (["v1beta1"], "v1beta1"), (["v1", "v1beta2"], "v1beta2")],
)
def test_the_newest_version_that_we_speak_is_taken(
    server: Server, cluster: KueueClient, served: list[str], version: str
) -> None:
    groups = [
        {"name": "batch", "versions": [{"version": "v1"}]},
        {"name": "kueue.x-k8s.io", "versions": [{"version": one} for one in served]},
    ]
    server.body = json.dumps({"groups": groups}).encode()
    assert cluster.kueue_version() == version


@pytest.mark.parametrize("groups", [[], [{"name": "kueue.x-k8s.io", "versions": []}]])
def test_without_kueue_that_is_what_is_said(
    server: Server, cluster: KueueClient, groups: list[Any]
) -> None:
    server.body = json.dumps({"groups": groups}).encode()
    with pytest.raises(NotFound, match=r"Kueue: .* is it installed"):
        cluster.kueue_version()


def test_objects_are_applied_as_ours_and_deleted_only_as_they_were_seen(
    server: Server, cluster: KueueClient
) -> None:
    item = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor"}
    cluster.apply("resourceflavors", {**item, "metadata": {"name": "f"}})
    cluster.delete("resourceflavors", "v1beta2", {"metadata": {"name": "f", "uid": "u"}})
    (one, where, _, headers), (two, path, body, _) = server.asked
    assert (one, two) == ("PATCH", "DELETE")
    assert where.endswith("/v1beta2/resourceflavors/f?fieldManager=kueue-nats&force=true")
    assert headers["Content-Type"] == "application/apply-patch+yaml"
    assert headers["authorization"] == f"Bearer {TOKEN}"
    assert path.endswith("/resourceflavors/f")
    assert body["preconditions"] == {"uid": "u"}
    assert cluster.writes == 2


def test_what_is_gone_already_is_deleted(server: Server, cluster: KueueClient) -> None:
    server.says(404, "not found")
    cluster.delete("resourceflavors", "v1beta2", {"metadata": {"name": "f", "uid": "u"}})


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"data": {"other": "eA=="}}, "has no key k"),
        ({"data": None}, "has no key k"),
        ({"data": {"k": "!"}}, "k is not text"),
        ({"data": {"k": "/w=="}}, "k is not text"),
    ],
)
def test_a_secret_that_cannot_be_used_is_named(
    server: Server, cluster: KueueClient, data: Any, words: str
) -> None:
    server.body = json.dumps(data).encode()
    with pytest.raises(KueueClientError, match=f"Secret ours/s: {words}"):
        cluster.secret("ours", "s", "k")
    server.body = b'{"data": {"k": "cHcK"}}'
    assert cluster.secret("ours", "s", "k") == "pw"


@pytest.mark.parametrize("content", ["", "{", "clusters: []", "[]", "current-context: x\n"])
def test_a_kubeconfig_that_is_none_is_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(ConfigError) as caught:
        connect(str(path))
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)
