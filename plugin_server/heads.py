"""Heads of requests that were read before: interLink sends the same one again and again.

To the byte the same, but for the length of the body: then gunicorn need not read it once more,
which is a sixth of all that a create costs. Only what gunicorn has let pass is kept.
"""

from __future__ import annotations

import io
from typing import Any, NamedTuple, Optional

from plugin_server.framing import known_length

Environment = dict[str, Any]

MOST_HEADS = 256
LONGEST_HEAD = 2048  # bytes of one that is kept

_OF_ONE_REQUEST = frozenset(("wsgi.input", "wsgi.early_hints", "gunicorn.socket"))


class _Head(NamedTuple):
    request: Any  # gunicorn's, of the first request of that kind
    environ: Environment  # what the application was told of it


class Named(NamedTuple):
    """What a head is known by, and what each request has of its own."""

    key: tuple[str, bytes]
    length: bytes
    body: bytes


class Heads:
    """Those of one worker; only the loop's thread touches them."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, bytes], _Head] = {}

    def find(self, named: Named, peer: Any, target: Any) -> Optional[tuple[Any, Environment]]:
        """gunicorn's request, and the environment of this one; None for a head that is new."""
        known = self._known.get(named.key)
        if known is None:
            return None
        environ = known.environ.copy()
        environ["CONTENT_LENGTH"] = named.length.decode()
        environ["wsgi.input"] = io.BytesIO(named.body)
        environ["gunicorn.socket"] = target
        if "REMOTE_PORT" in environ:
            environ["REMOTE_PORT"] = str(peer[1])
        return known.request, environ

    def keep(self, named: Named, request: Any, environ: Environment) -> None:
        """Remember it, in the place of the oldest if there are many."""
        if len(self._known) >= MOST_HEADS:
            del self._known[next(iter(self._known))]
        kept = {key: value for key, value in environ.items() if key not in _OF_ONE_REQUEST}
        request.body = request.unreader = None  # they hold the body, which may be large
        self._known[named.key] = _Head(request, kept)


def named(raw: bytes, peer: Any, server: Any) -> Optional[Named]:
    """What the head of a whole request is known by; None for one that is not to be kept."""
    place = known_length(raw)
    if place is None or place.start_of_body > LONGEST_HEAD:
        return None
    ends = f"{peer[0] if isinstance(peer, tuple) else peer!r} {server}"  # whom gunicorn trusts
    head = raw[: place.start] + raw[place.end : place.start_of_body]
    length, body = raw[place.start : place.end], raw[place.start_of_body :]
    return Named((ends, head), length, body)
