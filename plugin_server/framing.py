"""Where a request ends in what a client has sent; what it says is for gunicorn's parser."""

from __future__ import annotations

import re
from typing import NamedTuple, Optional, Union

LONGEST_HEAD = 64 * 1024  # gunicorn refuses much shorter ones

Received = Union[bytes, bytearray]

_END_OF_HEAD = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,18})[ \t]*\r\n", re.IGNORECASE)
_CODED = re.compile(rb"\r\ntransfer-encoding:", re.IGNORECASE)
_ABOUT_THE_BODY = re.compile(rb"content-length|transfer-encoding|expect", re.IGNORECASE)
_WAITS = re.compile(rb"\r\nexpect:[ \t]*100-continue[ \t]*\r\n", re.IGNORECASE)


class Length(NamedTuple):
    """Where the length of a body stands, and where the body begins."""

    start: int
    end: int
    start_of_body: int


def request_end(received: Received) -> int:
    """How many bytes the first request has; more than there are as long as some are missing.

    What can never become a request ends where it is seen: whoever reads it says what is wrong.
    """
    start = _start_of_body(received)
    if start == 0:
        return len(received) + (len(received) < LONGEST_HEAD)
    if _CODED.search(received, 0, start):
        return _end_of_chunks(received, start)
    length = _LENGTH.search(received, 0, start)
    return start + (int(length[1]) if length else 0)


def known_length(received: Received) -> Optional[Length]:
    """Of a request whose head says once, and in no other way, how long its body is; else None."""
    start = _start_of_body(received)
    length = _LENGTH.search(received, 0, start)
    if length is None or len(_ABOUT_THE_BODY.findall(received, 0, start)) > 1:
        return None
    return Length(*length.span(1), start)


def waits_for_permission(received: Received) -> bool:
    """Whether the client wants to hear that it may send the body."""
    return _WAITS.search(received, 0, _start_of_body(received)) is not None


def _start_of_body(received: Received) -> int:
    """0 as long as the head is not all there."""
    end = received.find(_END_OF_HEAD, 0, LONGEST_HEAD)
    return end + len(_END_OF_HEAD) if end >= 0 else 0


def _end_of_chunks(received: Received, start: int) -> int:
    missing = len(received) + 1
    while True:
        line = received.find(b"\r\n", start)
        if line < 0:
            return missing
        try:
            size = int(bytes(received[start:line]).partition(b";")[0], 16)
        except ValueError:
            return len(received)
        if size == 0:
            end = received.find(_END_OF_HEAD, line)
            return end + len(_END_OF_HEAD) if end >= 0 else missing
        start = line + 2 + max(size, 0) + 2
        if start > len(received):
            return missing
