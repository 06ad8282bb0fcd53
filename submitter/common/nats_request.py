"""Questions to NATS from the threads that ask batch systems, on the service's own connection."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent import futures
from typing import Callable

from templates.nats.connection import Link
from templates.nats.requests import NotConnected, Unanswered

ANSWER_S = 5.0

AskNats = Callable[[str, bytes, Mapping[str, str]], bytes]
"""Subject, payload and headers -> the answer; blocks, and raises ``LinkError``."""


def asking(link: Link) -> AskNats:
    """A way to ask; to be called in the loop that the connection belongs to."""
    loop = asyncio.get_running_loop()

    def ask(where: str, payload: bytes, headers: Mapping[str, str]) -> bytes:
        question = link.request_raw(where, payload, ANSWER_S, headers)
        answer = asyncio.run_coroutine_threadsafe(question, loop)
        try:
            return answer.result(2 * ANSWER_S)
        except (futures.CancelledError, futures.TimeoutError):
            raise Unanswered("the submitter is stopping") from None

    return ask


def nobody(where: str, payload: bytes, headers: Mapping[str, str]) -> bytes:
    """Stands for a connection where there is none."""
    raise NotConnected("no connection to NATS was made")
