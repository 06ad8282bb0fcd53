"""The message in a request, or the refusal to answer it with."""

from __future__ import annotations

from typing import Any

from submitter.common.errors import SubmitterError
from templates.nats.connection import Request
from templates.nats.requests import LinkError
from templates.protocol.messages import UNAVAILABLE, Refusal


class RequestRefused(SubmitterError):
    """A refusal to answer a request with."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


async def read_message(request: Request, pool: str) -> dict[str, Any]:
    """Return the message; raise ``WireError``, or ``RequestRefused`` without all of its parts."""
    try:
        return await request.message(pool)
    except LinkError as error:
        message = f"the parts of the request could not be fetched: {error}"
        raise RequestRefused(Refusal(UNAVAILABLE, message, True)) from None
