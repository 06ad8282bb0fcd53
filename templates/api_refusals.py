"""What a Kubernetes API server says when it does not do what it was asked."""

from __future__ import annotations

from templates.errors import one_line
from templates.json_text import load_json


def why(status: int, body: bytes) -> str:
    """In its own words, which stand in a Status object, or are plain text until it knows better."""
    try:
        found = load_json(body)
    except (ValueError, RecursionError):
        found = None
    said = found.get("message") if type(found) is dict else None
    if type(said) is str and said:
        return said
    text = one_line(body.decode(errors="replace"), 200)
    return f"status {status}: {text}" if text else f"status {status}"
