"""Bodies of requests, limited while they are read: no client may take the memory of all others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plugin_server.common.errors import Refused

AT_ONCE = 1024 * 1024


class TooLarge(Refused):
    """The body is larger than interLink's may be."""

    def __init__(self, limit: int) -> None:
        size = f"{limit // 1024**2} MiB" if limit else "nothing"
        super().__init__(413, f"the body of the request is too large: at most {size} here")


def read_body(environ: Mapping[str, Any], limit: int) -> bytes:
    """Return the body; raises ``TooLarge`` as soon as it is known to be more than ``limit``.

    One that says its length is refused by that, one in chunks at the first byte too many.
    """
    stream, length = environ["wsgi.input"], int(environ.get("CONTENT_LENGTH") or 0)
    if length > limit:
        if length <= 2 * limit:  # who is still sending would not see the answer
            while stream.read(AT_ONCE):
                pass
        raise TooLarge(limit)
    pieces: list[bytes] = []
    left = limit + 1
    while left > 0:
        piece = stream.read(min(left, AT_ONCE))
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
        left -= len(piece)
    raise TooLarge(limit)
