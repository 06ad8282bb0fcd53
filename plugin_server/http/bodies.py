"""Request bodies, limited while they are read: no client may use up the memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plugin_server.common.errors import Refused

PIECE_BYTES = 1024 * 1024


class TooLarge(Refused):
    """Request body above the limit."""

    def __init__(self, limit: int) -> None:
        size = f"{limit // 1024**2} MiB" if limit else "nothing"
        super().__init__(413, f"the body of the request is too large: at most {size} here")


def read_body(environ: Mapping[str, Any], limit: int) -> bytes:
    """Return the body; raises ``TooLarge`` as soon as it exceeds ``limit``.

    One with a Content-Length is rejected by that, a chunked one at the first byte too many.
    """
    stream, length = environ["wsgi.input"], int(environ.get("CONTENT_LENGTH") or 0)
    if length > limit:
        if length <= 2 * limit:  # a client that is still sending would not read the response
            while stream.read(PIECE_BYTES):
                pass
        raise TooLarge(limit)
    pieces: list[bytes] = []
    remaining = limit + 1
    while remaining > 0:
        piece = stream.read(min(remaining, PIECE_BYTES))
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
        remaining -= len(piece)
    raise TooLarge(limit)
