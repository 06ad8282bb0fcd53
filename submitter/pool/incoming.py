"""The message in a request, whole, or a reason to refuse it that can be answered."""

from __future__ import annotations

from typing import Any

from submitter.common.errors import SubmitterError
from templates.nats.connection import Request
from templates.nats.requests import LinkError
from templates.protocol.messages import UNAVAILABLE, Refusal


class Refused(SubmitterError):
    """A request that is answered with a refusal."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


async def received(request: Request, pool: str) -> dict[str, Any]:
    """The message; raises ``WireError``, or ``Refused`` when not all its parts could be fetched."""
    try:
        return await request.message(pool)
    except LinkError as error:
        words = f"the parts of the request could not be fetched: {error}"
        raise Refused(Refusal(UNAVAILABLE, words, True)) from None
