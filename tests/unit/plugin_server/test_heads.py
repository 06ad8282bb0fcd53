"""What is kept of a head, and what is not."""

from __future__ import annotations

import gc
import io
from types import FunctionType, ModuleType
from typing import Any

import pytest
from gunicorn import http
from gunicorn.config import Config
from gunicorn.http import wsgi

from plugin_server import heads
from plugin_server.connection import Outbox
from plugin_server.heads import Heads, named

PEER, SERVER = ("127.0.0.1", 7), ("127.0.0.1", 8)


def raw(body: bytes, host: bytes = b"x") -> bytes:
    head = b"POST /create HTTP/1.1\r\nHost: %b\r\nContent-Length: %d\r\n\r\n" % (host, len(body))
    return head + body


def read(known: Heads, request_bytes: bytes, peer: Any = PEER) -> bool:
    """Whether it had to be read by gunicorn."""
    head = named(request_bytes, peer, SERVER)
    assert head is not None
    if known.find(head, peer, Outbox()) is not None:
        return False
    request = next(http.RequestParser(Config(), iter((request_bytes,)), peer))
    body = request.body.read()
    _, environ = wsgi.create(request, Outbox(), peer, SERVER, Config())
    known.keep(head, request, {**environ, "wsgi.input": io.BytesIO(body)})
    return True


def test_only_the_body_its_length_and_the_clients_port_are_told_anew() -> None:
    known = Heads()
    assert read(known, raw(b"first"))
    head = named(raw(b"the second"), ("127.0.0.1", 9), SERVER)
    assert head is not None
    target = Outbox()
    found = known.find(head, ("127.0.0.1", 9), target)
    assert found is not None
    environ = found[1]
    assert environ["wsgi.input"].read() == b"the second"
    assert (environ["CONTENT_LENGTH"], environ["REMOTE_PORT"]) == ("10", "9")
    assert environ["gunicorn.socket"] is target
    assert environ["HTTP_HOST"] == "x"


def test_another_head_or_another_address_is_another_one() -> None:
    known = Heads()
    assert read(known, raw(b"1"))
    assert read(known, raw(b"1", host=b"y"))
    assert read(known, raw(b"1"), peer=("127.0.0.2", 7))
    assert not read(known, raw(b"22"))


def reachable(root: object) -> list[object]:
    """Everything that is kept alive by something, but for code."""
    found: dict[int, object] = {}
    waiting = [root]
    while waiting:
        one = waiting.pop()
        if id(one) not in found and not isinstance(one, (type, ModuleType, FunctionType)):
            found[id(one)] = one
            waiting += gc.get_referents(one)
    return list(found.values())


def test_no_body_is_kept() -> None:
    known = Heads()
    assert read(known, raw(b"kept?" * 1000))
    texts = [one for one in reachable(known) if isinstance(one, (bytes, bytearray, io.BytesIO))]
    assert texts
    assert not any(b"kept?" in (t.getvalue() if isinstance(t, io.BytesIO) else t) for t in texts)


def test_no_more_than_so_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "MOST_HEADS", 2)
    known = Heads()
    for host in (b"a", b"b", b"c"):
        assert read(known, raw(b"1", host=host))
    assert not read(known, raw(b"1", host=b"c"))
    assert read(known, raw(b"1", host=b"a"))
