"""Where requests end."""

from __future__ import annotations

import pytest

from plugin_server.framing import LONGEST_HEAD, known_length, request_end, waits_for_permission

HEAD = b"POST /create HTTP/1.1\r\nHost: x\r\n"
PLAIN = HEAD + b"Content-Length: 5\r\n\r\nhello"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\nA\r\n0123456789\r\n0\r\n\r\n"
WITH_TRAILERS = CHUNKED[:-2] + b"Digest: x\r\n\r\n"
WITHOUT_BODY = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
WHOLE = (PLAIN, CHUNKED, WITH_TRAILERS, WITHOUT_BODY)


@pytest.mark.parametrize("request_bytes", WHOLE)
def test_a_request_ends_where_it_ends_whatever_follows(request_bytes: bytes) -> None:
    for behind in (b"", b"G", WITHOUT_BODY, b"\r\n\r\n"):
        assert request_end(request_bytes + behind) == len(request_bytes)


@pytest.mark.parametrize("request_bytes", WHOLE)
def test_as_long_as_a_byte_is_missing_more_are_awaited(request_bytes: bytes) -> None:
    for count in range(len(request_bytes)):
        assert request_end(bytearray(request_bytes[:count])) > count


def test_the_length_counts_however_it_is_written() -> None:
    head = b"POST / HTTP/1.1\r\ncontent-LENGTH:\t 12 \r\nHost: x\r\n\r\n"
    assert request_end(head) == len(head) + 12


@pytest.mark.parametrize(
    "junk",
    [
        b"x" * LONGEST_HEAD,
        b"x" * LONGEST_HEAD + b"\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nno number\r\n",
    ],
)
def test_what_cannot_become_a_request_is_not_waited_for(junk: bytes) -> None:
    assert request_end(junk) == len(junk)


def test_no_length_is_too_large_to_be_read() -> None:
    head = HEAD + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n"
    assert request_end(head) == len(head)
    chunks = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 5000 + b"\r\n"
    assert request_end(chunks) == len(chunks) + 1
    backwards = HEAD + b"Transfer-Encoding: chunked\r\n\r\n-5\r\n" + b"x" * 20
    assert request_end(backwards) >= len(HEAD)


def test_a_client_may_want_to_be_told_to_go_on() -> None:
    asks = HEAD + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"
    assert waits_for_permission(asks)
    assert not waits_for_permission(PLAIN)
    assert not waits_for_permission(
        HEAD + b"Content-Length: 30\r\n\r\n\r\nExpect: 100-continue\r\n"
    )


def test_a_length_is_known_where_it_is_said_once() -> None:
    found = known_length(PLAIN)
    assert found is not None
    assert (PLAIN[found.start : found.end], PLAIN[found.start_of_body :]) == (b"5", b"hello")
    assert known_length(CHUNKED) is known_length(WITHOUT_BODY) is None
    for more in (b"Content-Length: 5", b"x: content-length", b"Expect: 100-continue"):
        assert known_length(HEAD + more + b"\r\nContent-Length: 5\r\n\r\nhello") is None
