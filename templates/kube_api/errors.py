"""What a Kubernetes API server says when it does not do what it was asked."""

from __future__ import annotations

from templates.common.errors import one_line
from templates.common.json_codec import load_json


def why(status: int, body: bytes) -> str:
    """In its own words; plain text, which it uses until it knows better, comes with the status."""
    return _message(body) or with_status("status", status, body)


def with_status(what: str, status: int, body: bytes) -> str:
    """The same behind the status, whatever form they have: ``<what> 403: pods is forbidden``."""
    words = _message(body) or one_line(body.decode(errors="replace"), 200)
    return f"{what} {status}: {words}" if words else f"{what} {status}"


def _message(body: bytes) -> str:
    """That of a Status object; empty when it is none."""
    try:
        found = load_json(body)
    except (ValueError, RecursionError):
        return ""
    message = found.get("message") if type(found) is dict else ""
    return message if type(message) is str else ""
