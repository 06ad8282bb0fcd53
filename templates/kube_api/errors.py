"""Messages of a Kubernetes API server that refuses a request."""

from __future__ import annotations

from templates.common.errors import one_line
from templates.common.json_codec import load_json


def message_of(status: int, body: bytes) -> str:
    """Return the message of a Status object; for another body its text, behind the status."""
    return _message(body) or message_with_status("status", status, body)


def message_with_status(prefix: str, status: int, body: bytes) -> str:
    """Return the message behind the status: ``<prefix> 403: pods is forbidden``."""
    message = _message(body) or one_line(body.decode(errors="replace"), 200)
    return f"{prefix} {status}: {message}" if message else f"{prefix} {status}"


def _message(body: bytes) -> str:
    """Return the message of a Status object; empty if the body is none."""
    try:
        found = load_json(body)
    except (ValueError, RecursionError):
        return ""
    message = found.get("message") if type(found) is dict else ""
    return message if type(message) is str else ""
