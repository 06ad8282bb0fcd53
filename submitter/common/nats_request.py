"""Requests to NATS from the threads of backends, on the service's own connection."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent import futures
from typing import Callable

from templates.nats.connection import Link
from templates.nats.requests import NotConnected, Reply, Unanswered

TIMEOUT_S = 5.0

AskNats = Callable[[str, bytes, Mapping[str, str]], Reply]
"""Subject, payload and headers -> the reply; blocks, and raises ``LinkError``."""


def ask_through(link: Link) -> AskNats:
    """Return a function that sends requests; call this one in the loop of the connection."""
    loop = asyncio.get_running_loop()

    def ask(subject: str, payload: bytes, headers: Mapping[str, str]) -> Reply:
        request = link.ask(subject, payload, TIMEOUT_S, headers)
        reply = asyncio.run_coroutine_threadsafe(request, loop)
        try:
            return reply.result(2 * TIMEOUT_S)
        except (futures.CancelledError, futures.TimeoutError):
            raise Unanswered("the submitter is stopping") from None

    return ask


def not_connected(subject: str, payload: bytes, headers: Mapping[str, str]) -> Reply:
    """Raise ``NotConnected``, in place of requests where there is no connection."""
    raise NotConnected("no connection to NATS was made")
