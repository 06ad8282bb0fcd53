"""Requests that interLink never sends: one clear line each, never a traceback or a 500."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plugin_server.pods import create
from tests.support.mutations import spoilt
from tests.unit.plugin_server.conftest import Plugin, until
from tests.unit.plugin_server.pod_builders import pod, status
from tests.unit.plugin_server.site import Site

RECORDINGS = Path(__file__).parents[3] / "data" / "recordings" / "0.6.2"
ROUNDS = 300
ENDPOINTS = {
    "/create": ("POST", "create-everything"),
    "/delete": ("POST", "delete-everything"),
    "/status": ("GET", "status-everything-running"),
    "/getLogs": ("GET", "getLogs-everything-main"),
}


def recorded(name: str) -> Any:
    return json.loads((RECORDINGS / f"{name}.json").read_text())["body"]


@pytest.fixture
def quick(make_plugin: Callable[..., Plugin], site: Site) -> Plugin:
    """A plugin that knows one pool, which takes what is left of a spoilt pod."""
    plugin = make_plugin(default_pool=site.pool)
    until(lambda: plugin.service.pools.config(site.pool))
    return plugin


def check(plugin: Plugin, method: str, path: str, body: bytes) -> int:
    answer = plugin.client.open(path, method=method, data=body)
    code: int = answer.status_code
    assert code == 200 or 400 <= code < 500, (code, answer.text, body[:2000])
    if code != 200:
        assert answer.content_type == "text/plain; charset=utf-8"
        assert answer.text.endswith("\n") and answer.text.count("\n") == 1, answer.text
        assert 1 < len(answer.text) <= 602
    elif path == "/status":
        assert isinstance(answer.get_json(), (list, dict))
    return code


@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_spoilt_request_gets_one_clear_line(
    quick: Plugin, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    method, name = ENDPOINTS[path]
    good = recorded(name)
    dice = random.Random(path)
    # A pool that nobody knows is waited for, which is not what is tried here.
    text = json.dumps(good).replace('"key": "pool.vk.io"', '"key": "other"')
    holder = {"body": json.loads(text)}
    codes = set()
    with caplog.at_level(logging.ERROR):
        for _ in range(ROUNDS):
            body = spoilt(holder, dice).get("body")
            codes.add(check(quick, method, path, json.dumps(body).encode()))
    assert [record.getMessage() for record in caplog.records] == []
    assert 400 in codes


@pytest.mark.parametrize("path", ENDPOINTS)
def test_bytes_that_are_no_request_get_one_clear_line(quick: Plugin, path: str) -> None:
    method, name = ENDPOINTS[path]
    whole = json.dumps(recorded(name)).encode()
    dice = random.Random(path)
    deep = b"[" * 100_000
    many = b"[" + b"0," * 1_000_000 + b"0]"
    bodies = [many, b"", b" ", b"null", b"\xff\xfe", b"{}", b"[[]]", b'"x"', b"1e999", deep, b"NaN"]
    bodies += [dice.randbytes(dice.randrange(300)) for _ in range(300)]
    bodies += [whole[: dice.randrange(len(whole))] for _ in range(200)]
    for body in bodies:
        check(quick, method, path, body)


@pytest.mark.parametrize("body", [b"{", b"[]", b"1", b"[" + b"0," * 300_000 + b"0]"])
def test_a_create_without_a_pod_is_not_read_again_for_its_pod(
    quick: Plugin, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(create, "_pod_of", None)
    assert check(quick, "POST", "/create", body) == 400


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("path", ["/", "/create", "/Create", "/status/", "/getlogs", "/%00", "/x"])
def test_a_path_or_method_that_is_none_gets_one_line(
    plugin: Plugin, path: str, method: str
) -> None:
    answer = plugin.client.open(path, method=method)
    assert 400 <= answer.status_code < 500
    assert answer.text.count("\n") == 1


def test_one_pod_among_many_that_is_none_refuses_the_call_by_its_number(
    plugin: Plugin, site: Site
) -> None:
    raw = pod()
    site.say(status(raw))
    answer = plugin.client.get("/status", data=json.dumps([raw, {"metadata": {}}]))
    words = "pod 1.metadata.uid: must be a lower-case UUID\n"
    assert (answer.status_code, answer.text) == (400, words)
