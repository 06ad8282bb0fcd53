from __future__ import annotations

import pytest

from templates.kube_api.errors import message_of, message_with_status


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"kind": "Status", "message": "pods is forbidden"}', "pods is forbidden"),
        (b"404 page not found\n", "status 404: 404 page not found"),
        (b"", "status 404"),
        (b"\xff", "status 404: \N{REPLACEMENT CHARACTER}"),
        (b'{"message": ""}', 'status 404: {"message": ""}'),
        (b'{"message": {}}', 'status 404: {"message": {}}'),
        (b'"x"', 'status 404: "x"'),
    ],
)
def test_the_api_servers_own_words_are_told(body: bytes, words: str) -> None:
    assert message_of(404, body) == words


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"kind": "Status", "message": "pods is forbidden"}', "it says 403: pods is forbidden"),
        (b"no\n", "it says 403: no"),
        (b"", "it says 403"),
    ],
)
def test_they_are_told_behind_the_status(body: bytes, words: str) -> None:
    assert message_with_status("it says", 403, body) == words


@pytest.mark.parametrize("body", [b"[" * 100_000, b"<html>" * 100_000])
def test_what_is_long_is_cut(body: bytes) -> None:
    found = message_of(502, body)
    assert found.startswith("status 502: ") and len(found) < 250
