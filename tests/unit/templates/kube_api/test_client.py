"""The client of the Kubernetes API, against a server that says what a test wants."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Callable
from urllib.parse import parse_qs, urlsplit

import pytest
import urllib3

from templates.common.errors import ConfigError, InterlinkNatsError
from templates.kube_api.client import ApiAccess, Call, Failure, KubeClient

Answer = tuple[int, bytes]


class CallFailed(InterlinkNatsError):
    """What this program makes of a failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


class Server(http.server.ThreadingHTTPServer):
    """Answers by a function of the query and the headers."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.says: Callable[[Mapping[str, list[str]], Mapping[str, str]], Answer]
        self.headers: list[dict[str, str]] = []


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.headers.append(dict(self.headers))
        query = parse_qs(urlsplit(self.path).query)
        status, body = self.server.says(query, dict(self.headers))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


setattr(Handler, "do_POST", Handler.do_GET)  # noqa: B010 (a name that its base asks for)


class Source:
    """Credentials that can be renewed so often."""

    def __init__(self, url: str) -> None:
        self.url, self.renewals = url, 0
        self.wrong = ""
        self.connections = urllib3.PoolManager()

    def access(self) -> ApiAccess:
        if self.wrong:
            raise ConfigError("token", self.wrong)
        headers = {"Authorization": f"Bearer {self.renewals}"}
        return ApiAccess(self.url, self.connections, headers)

    def renew(self) -> None:
        self.renewals += 1


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
def source(server: Server) -> Iterator[Source]:
    found = Source(f"http://127.0.0.1:{server.server_address[1]}")
    yield found
    found.connections.clear()


@pytest.fixture
def client(source: Source) -> KubeClient:
    return KubeClient(source, CallFailed, agent="a-test", connect_s=5, read_s=5)


def always(status: int, content: Any) -> Callable[..., Answer]:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return lambda query, headers: (status, body)


def test_an_object(server: Server, client: KubeClient) -> None:
    server.says = always(200, {"a": 1})
    assert client.get("/x", "an x") == {"a": 1}
    assert client.call(Call("POST", "/x", "an x", {"b": 2}, "application/b")) == {"a": 1}
    asked, made = server.headers
    assert (asked["User-Agent"], asked["Accept"]) == ("a-test", "application/json")
    assert "Content-Type" not in asked
    assert made["Content-Type"] == "application/b"


def test_credentials_that_are_refused_are_read_anew_once(
    server: Server, source: Source, client: KubeClient
) -> None:
    def until_renewed(query: Any, headers: Mapping[str, str]) -> Answer:
        return (200, b"{}") if headers["Authorization"] == "Bearer 1" else (401, b"no")

    server.says = until_renewed
    assert client.get("/x", "an x") == {}
    server.says = always(401, {"message": "Unauthorized"})
    with pytest.raises(CallFailed, match="Unauthorized") as caught:
        client.get("/x", "an x")
    assert caught.value.failure.status == 401
    assert source.renewals == 2


def test_credentials_that_cannot_be_read(source: Source, client: KubeClient) -> None:
    source.wrong = "is not there"
    with pytest.raises(CallFailed, match="token: is not there") as caught:
        client.get("/x", "an x")
    assert (caught.value.failure.what, caught.value.failure.status) == ("an x", 0)


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_all_pages(server: Server, client: KubeClient, limit: int) -> None:
    def page(query: Mapping[str, list[str]], headers: Any) -> Answer:
        at = int(query.get("continue", ["0"])[0])
        assert query["labelSelector"] == ["a=b"]
        more = str(at + limit) if at + limit < 5 else ""
        items = list(range(5))[at : at + limit]
        return 200, json.dumps({"items": items, "metadata": {"continue": more}}).encode()

    server.says = page
    assert client.items("/xs", "listing", {"labelSelector": "a=b"}) == [0, 1, 2, 3, 4]


def test_a_list_that_breaks_off_or_is_none(server: Server, client: KubeClient) -> None:
    def gone(query: Mapping[str, list[str]], headers: Any) -> Answer:
        if "continue" in query:
            return 410, b'{"message": "too old"}'
        return 200, b'{"items": [1], "metadata": {"continue": "x"}}'

    server.says = gone
    with pytest.raises(CallFailed, match="too old"):
        client.items("/xs", "listing")
    for content in ({}, {"items": {}}):
        server.says = always(200, content)
        with pytest.raises(CallFailed, match="is no list"):
            client.items("/xs", "listing")


def test_an_empty_list(server: Server, client: KubeClient) -> None:
    for items in ([], None):
        server.says = always(200, {"items": items, "metadata": {}})
        assert client.items("/xs", "listing") == []


def test_a_list_without_end(
    server: Server, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("templates.kube_api.client.PAGES", 3)
    server.says = always(200, {"items": [1], "metadata": {"continue": "x"}})
    with pytest.raises(CallFailed, match="within 3 pages"):
        client.items("/xs", "listing")
    assert len(server.headers) == 3


def test_a_stream(server: Server, client: KubeClient) -> None:
    server.says = always(200, b"one\ntwo\nrest")
    assert list(client.lines("/log", "the log", {})) == [b"one\n", b"two\n", b"rest"]
    server.says = always(200, b'{"a": 1}\n{"b": 2}\n')
    assert list(client.objects("/xs", "watching", {"watch": "true"})) == [{"a": 1}, {"b": 2}]
    server.says = always(200, b'{"a": 1}\n{"b"')
    with pytest.raises(CallFailed, match="no JSON object"):
        list(client.objects("/xs", "watching", {}))


def test_a_stream_that_is_refused_keeps_its_status(server: Server, client: KubeClient) -> None:
    server.says = always(400, {"message": "the container is waiting to start"})
    with pytest.raises(CallFailed, match="waiting to start") as caught:
        list(client.lines("/log", "the log", {}))
    assert caught.value.failure.status == 400


def test_nobody_there(source: Source, client: KubeClient) -> None:
    source.url = "http://127.0.0.1:1"
    with pytest.raises(CallFailed, match="refused") as caught:
        client.get("/x", "an x")
    words = str(caught.value)
    assert words.startswith("Failed to establish a new connection")
    assert caught.value.failure.status == 0
