"""Request and reply on one connection to NATS, with four distinct outcomes.

nats-py's own requests go on waiting when the connection breaks; these fail at once.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from itertools import count
from typing import NamedTuple, Optional

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from templates.common.errors import InterlinkNatsError, one_line

Headers = Optional[Mapping[str, str]]


class LinkError(InterlinkNatsError):
    """A request that got no answer."""


class NoResponders(LinkError):
    """Nobody listens there: the request was certainly not carried out."""


class Unanswered(LinkError):
    """No answer in time, or no connection: the request may have been carried out."""


class NotConnected(LinkError):
    """There was no connection to send it with: it was certainly not carried out."""


class Reply(NamedTuple):
    """An answer, as it came."""

    payload: bytes
    headers: Mapping[str, str]


class Requester:
    """Requests on one connection, and their pending answers."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._inbox = client.new_inbox()
        self._pending: dict[str, asyncio.Future[Reply]] = {}
        self._numbers = count()

    @classmethod
    async def on(cls, client: Client) -> Requester:
        """Return a requester whose inbox is subscribed."""
        requester = cls(client)
        await client.subscribe(f"{requester._inbox}.*", cb=requester._receive)
        return requester

    async def ask(
        self, where: str, payload: bytes, timeout_s: float, headers: Headers = None
    ) -> Reply:
        """Send a request and return the answer; raise a ``LinkError`` if none comes."""
        inbox = f"{self._inbox}.{next(self._numbers)}"
        answer = asyncio.get_running_loop().create_future()
        self._pending[inbox] = answer
        try:
            await self._publish(where, payload, inbox, headers)
            return await asyncio.wait_for(answer, timeout_s)
        except asyncio.TimeoutError:
            raise Unanswered(f"no answer within {timeout_s:g} s on {where}") from None
        finally:
            self._pending.pop(inbox, None)

    async def _publish(self, where: str, payload: bytes, inbox: str, headers: Headers) -> None:
        own = dict(headers) if headers else None
        try:
            await self._client.publish(where, payload, reply=inbox, headers=own)
        except (NatsError, OSError) as error:
            raise NotConnected(reason_of(error)) from None

    async def _receive(self, message: Msg) -> None:
        answer = self._pending.get(message.subject)
        if answer is None or answer.done():
            return
        if message.headers and message.headers.get("Status") == "503":
            answer.set_exception(NoResponders("nobody listens there"))
        else:
            answer.set_result(Reply(message.data, message.headers or {}))

    def give_up(self) -> None:
        """Fail all pending requests: the connection is gone."""
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(Unanswered("the connection to NATS broke"))


async def next_message(
    subscription: Subscription, broken: asyncio.Event, timeout_s: float
) -> bytes:
    """Return the next message of an answer in many; fail at once when the connection breaks."""
    coming = asyncio.ensure_future(subscription.next_msg(timeout=timeout_s))
    breaking = asyncio.ensure_future(broken.wait())
    try:
        await asyncio.wait({coming, breaking}, return_when=asyncio.FIRST_COMPLETED)
        if not coming.done():
            raise Unanswered("the connection to NATS broke")
        message = await coming
    except asyncio.TimeoutError:
        raise Unanswered(f"nothing came within {timeout_s:g} s") from None
    except NatsError as error:
        raise Unanswered(f"the connection to NATS broke: {reason_of(error)}") from None
    finally:
        coming.cancel()
        breaking.cancel()
    if message.headers and message.headers.get("Status") == "503":
        raise NoResponders("nobody listens there")
    return message.data


def reason_of(error: BaseException) -> str:
    """Return the message of an error, in one line."""
    message = re.sub(r" ssl:(<[^>]*>|\w+)", "", str(error))  # aiohttp names the object in memory
    return one_line(message) or type(error).__name__
