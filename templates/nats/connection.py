"""The connection to NATS of all our programs: made again whenever it breaks, for ever.

A connection is never repaired: when it breaks, or a ping times out, a new client object takes its
place, with credentials read from their files anew and with every subscription. Without a
connection, or when it breaks before the answer, the caller gets an error: what that means differs
between requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Callable, NamedTuple, Optional, TypeVar

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import DEFAULT_SUB_PENDING_BYTES_LIMIT
from nats.errors import Error as NatsError
from nats.errors import SlowConsumerError

from templates.common.errors import ConfigError, WireError
from templates.common.names import check_token
from templates.nats import codec
from templates.nats.chunks import ChunkStore, reassemble
from templates.nats.client import (
    CONNECT_TIMEOUT_S,
    CarefulClient,
    cancel_and_wait,
    close,
    open_client,
    server_of,
    settle,
)
from templates.nats.options import LinkSettings
from templates.nats.requests import (
    Headers,
    LinkError,
    NotConnected,
    Reply,
    Requester,
    Unanswered,
    next_message,
    reason_of,
)
from templates.nats.shares import MESSAGE_S, MOST_WAITING_BYTES, Share, WaitingMessages
from templates.nats.subjects import ANSWER_PARTS, REQUEST_PARTS, is_inbox, row_of

logger = logging.getLogger(__name__)

PING_EVERY_S = 5
PING_TIMEOUT_S = 5
FLUSH_TIMEOUT_S = 2
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 2.0
SHARE_OF_PAYLOAD = 0.75  # of the server's limit: the rest is for subjects and headers
HANDLERS_AT_ONCE = 256  # per subscription; further messages wait in nats-py's own queue
MOST_SUBJECTS = 4096  # that publications are heard on; a flood of others must not fill the memory
COMPLAIN_EVERY_S = 10.0  # of what is wrong with publications on one subject
LARGEST_STREAM = 16 * 1024 * 1024  # bytes of an answer in many messages that wait to be read
MOST_OF_STREAM = 65536  # of its messages

Result = TypeVar("Result")
Handler = Callable[["Request"], Awaitable[None]]
OnPublication = Callable[[str, Mapping[str, Any]], None]


class Subscription(NamedTuple):
    """A subscription that is made again on each new connection."""

    subject: str
    queue: str
    take: Callable[[Msg], Awaitable[None]]
    most_unread: int = DEFAULT_SUB_PENDING_BYTES_LIMIT  # bytes in nats-py's queue


class Request:
    """A message that came in, and a way to answer it."""

    def __init__(self, link: Link, message: Msg) -> None:
        self._link = link
        self._message = message

    @property
    def subject(self) -> str:
        """The subject that it was published on."""
        return self._message.subject

    @property
    def raw(self) -> bytes:
        """The payload as it came: perhaps only the announcement of a large message."""
        return self._message.data

    @property
    def reply(self) -> str:
        """The subject for an answer; empty if none is awaited, or none may go there."""
        return self._message.reply if is_inbox(self._message.reply) else ""

    async def message(self, pool: str) -> dict[str, Any]:
        """Return the message, fetched in chunks if it is large."""
        return await self._link.read(REQUEST_PARTS, pool, self._message)

    async def answer(self, pool: str, message: Mapping[str, Any]) -> None:
        """Answer, in chunks if the message is large."""
        await self.answer_raw(pool, codec.encode(message))

    async def answer_raw(self, pool: str, raw: bytes) -> None:
        """Answer with a message that is encoded already."""
        if self.reply:
            async with self._link.chunked_if_large(ANSWER_PARTS, pool, raw) as payload:
                await self._link.publish_raw(self.reply, payload)


class Link:
    """One connection to NATS, from ``start`` to ``stop``."""

    def __init__(
        self,
        settings: LinkSettings,
        root: str,
        on_connected: Optional[Callable[[], Awaitable[None]]] = None,
    ) -> None:
        self._settings = settings
        self._root = root
        self._on_connected = on_connected
        self._subscriptions: list[Subscription] = []
        self._client: Optional[Client] = None
        self._requester: Optional[Requester] = None
        self._ready = asyncio.Event()
        self._broken = asyncio.Event()
        self._connector: Optional[asyncio.Task[None]] = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._chunks = ChunkStore(root, self._live_client)
        self._shares: dict[str, Share] = {}  # pool -> what its messages may cost
        self._waiting: dict[str, WaitingMessages] = {}  # subject -> publications
        self._last_answer = 0.0
        self._error = "not connected yet"
        self.connections = 0
        self.server_errors: deque[str] = deque(maxlen=100)
        """The latest errors that the server has reported, on any connection."""

    # --- start and stop -----------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to connect; returns at once."""
        self._connector = asyncio.create_task(self._keep_connected(), name="nats link")

    async def stop(self) -> None:
        """Close, for good; what was published before is on its way."""
        await cancel_and_wait([self._connector] if self._connector is not None else [])
        await cancel_and_wait(self._tasks)
        await self._disconnect(flush=True)

    async def ended(self) -> None:
        """Return when the connection is no longer kept: after ``stop``, or by a bug."""
        if self._connector is not None:
            await asyncio.wait([self._connector])

    async def connected(self, timeout_s: Optional[float] = None) -> bool:
        """Wait for a connection; return False if there is none in time."""
        try:
            await asyncio.wait_for(self._ready.wait(), timeout_s)
        except asyncio.TimeoutError:
            return False
        return True

    @property
    def is_connected(self) -> bool:
        """Return whether there is a connection, as far as is known."""
        return self._ready.is_set()

    @property
    def silent_s(self) -> float:
        """Seconds since the server last answered us."""
        return time.monotonic() - self._last_answer if self._last_answer else float("inf")

    @property
    def error(self) -> str:
        """Why there is no connection, in one line; empty when there is one."""
        return "" if self.is_connected else self._error

    @property
    def part_size(self) -> int:
        """The largest payload that goes in one message."""
        limit = self._client.max_payload if self._client is not None else 0
        return int((limit or 1024 * 1024) * SHARE_OF_PAYLOAD)

    # --- messages -----------------------------------------------------------------------------

    async def publish_raw(self, where: str, payload: bytes) -> None:
        """Publish bytes; raise ``NotConnected`` without a connection."""
        try:
            await self._live_client().publish(where, payload)
        except (NatsError, OSError) as error:
            raise NotConnected(reason_of(error)) from None

    async def publish(
        self, where: str, message: Mapping[str, Any], *, compress: bool = True
    ) -> None:
        """Publish a message that is small by its nature."""
        await self.publish_raw(where, codec.encode(message, compress=compress))

    async def request(
        self, pool: str, where: str, message: Mapping[str, Any], timeout_s: float
    ) -> dict[str, Any]:
        """Send a request and return the answer; large messages go in chunks, both ways."""
        return await self.request_and_read(pool, where, message, timeout_s, lambda answer: answer)

    async def request_and_read(
        self,
        pool: str,
        where: str,
        message: Mapping[str, Any],
        timeout_s: float,
        read: Callable[[dict[str, Any]], Result],
    ) -> Result:
        """Send a request and return what its answer is read as, which takes time of the pool's."""
        largest = row_of(self._root, where).largest_answer
        share = self._share(pool)
        await asyncio.sleep(share.pause_s())
        async with self.chunked_if_large(REQUEST_PARTS, pool, codec.encode(message)) as payload:
            answer = await self.request_raw(where, payload, timeout_s)
        raw = await self._reassemble(ANSWER_PARTS, pool, answer, largest)
        with share.spending():
            return read(codec.decode(raw, largest))

    async def request_raw(self, where: str, payload: bytes, timeout_s: float) -> bytes:
        """Send a request and return the answer, as bytes."""
        return (await self.ask(where, payload, timeout_s)).payload

    async def ask(
        self, where: str, payload: bytes, timeout_s: float, headers: Headers = None
    ) -> Reply:
        """Send a request with headers and return the answer with its own."""
        requester = self._requester
        if requester is None:
            raise NotConnected(f"no connection to NATS: {self._error}")
        return await requester.ask(where, payload, timeout_s, headers)

    def subscribe(self, where: str, handler: Handler, queue: str = "") -> None:
        """Subscribe on this connection and all that follow it.

        To be called before ``start``. Each message gets a task of its own, so that a slow one
        never delays another.
        """
        rooms: list[asyncio.Semaphore] = []  # one, made in the loop: Python 3.9 wants it so

        async def take(message: Msg) -> None:
            if not rooms:
                rooms.append(asyncio.Semaphore(HANDLERS_AT_ONCE))
            await rooms[0].acquire()
            task = self._spawn(self._handle(handler, message))
            task.add_done_callback(lambda _: rooms[0].release())

        self._subscriptions.append(Subscription(where, queue, take))

    def subscribe_to_publications(self, where: str, handler: OnPublication, largest: int) -> None:
        """Subscribe to what pools publish, each on a subject that ends in its name.

        They may be strangers to each other. So the messages of a subject wait in a queue of their
        own, of which the oldest are dropped, and a pool gets no more than its share of the time.
        """

        async def take(message: Msg) -> None:
            waiting = self._waiting.get(message.subject)
            if waiting is None and len(self._waiting) < MOST_SUBJECTS:
                waiting = self._waiting[message.subject] = WaitingMessages()
            if waiting is None:
                return
            waiting.put(message)
            if not waiting.is_handled:
                waiting.is_handled = True
                self._spawn(self._handle_publications(message.subject, waiting, handler, largest))

        self._subscriptions.append(Subscription(where, "", take, 2 * MOST_WAITING_BYTES))

    @contextlib.asynccontextmanager
    async def stream(
        self, largest: int = LARGEST_STREAM, most_messages: int = MOST_OF_STREAM
    ) -> AsyncIterator[tuple[str, Callable[[float], Awaitable[bytes]]]]:
        """Yield an inbox for an answer in many messages, and a function that awaits the next.

        What comes while ``largest`` bytes or so many messages wait to be read is lost.
        """
        client = self._live_client()
        inbox = client.new_inbox()
        subscription = await client.subscribe(
            inbox, pending_msgs_limit=most_messages, pending_bytes_limit=largest
        )

        try:
            yield inbox, partial(next_message, subscription, self._broken)
        finally:
            with contextlib.suppress(NatsError, OSError):
                await subscription.unsubscribe()

    async def publish_request(self, where: str, inbox: str, message: Mapping[str, Any]) -> None:
        """Send a request whose answer goes to an inbox of ``stream``."""
        try:
            await self._live_client().publish(where, codec.encode(message), reply=inbox)
        except (NatsError, OSError) as error:
            raise NotConnected(reason_of(error)) from None

    async def settle(self) -> None:
        """Wait until the server has dealt with all that was published; it may have complained."""
        try:
            await settle(self._live_client(), FLUSH_TIMEOUT_S)
        except (NatsError, OSError, asyncio.TimeoutError) as error:
            raise Unanswered(f"the server does not answer ({reason_of(error)})") from None

    # --- large messages -----------------------------------------------------------------------

    def chunked_if_large(
        self, kind: str, pool: str, raw: bytes
    ) -> AbstractAsyncContextManager[bytes]:
        """Return a context with a payload for these bytes: themselves, or what announces chunks."""
        return self._chunks.chunked_if_large(kind, pool, raw, self.part_size)

    async def read(self, kind: str, pool: str, message: Msg) -> dict[str, Any]:
        """Return the message in a request, fetched in chunks if it announces them."""
        largest = row_of(self._root, message.subject).largest
        raw = await self._reassemble(kind, pool, message.data, largest)
        return codec.decode(raw, largest)

    async def _reassemble(self, kind: str, pool: str, raw: bytes, largest: int) -> bytes:
        return await reassemble(self._root, kind, pool, raw, largest, self.request_raw)

    # --- the connection -----------------------------------------------------------------------

    def _live_client(self) -> Client:
        if self._client is None or not self._ready.is_set():
            raise NotConnected(f"no connection to NATS: {self._error}")
        return self._client

    async def _keep_connected(self) -> None:
        pause = FIRST_PAUSE_S
        while True:
            if await self._connect():
                pause = FIRST_PAUSE_S
                await self._watch()
                await self._disconnect()
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 (not a secret)
            pause = min(pause * 2, LONGEST_PAUSE_S)

    async def _connect(self) -> bool:
        """Try every server once; log why there is no connection if the reason is a new one."""
        servers = self._settings.servers
        errors = []
        for server in random.sample(servers, len(servers)):
            error = await self._connect_to(server)
            if not error:
                return True
            errors.append(error if len(servers) == 1 else f"{server}: {error}")
        error = "; ".join(sorted(errors))
        if error != self._error:
            logger.warning("no connection to NATS: %s", error)
        self._error = error
        return False

    async def _connect_to(self, server: str) -> str:
        """Try one server; return why there is no connection, empty if there is one."""
        self._broken = asyncio.Event()  # of this client only: an older one may still be closing
        client = CarefulClient()
        try:
            requester = await asyncio.wait_for(self._open(client, server), 3 * CONNECT_TIMEOUT_S)
        except (NatsError, OSError, ConfigError, asyncio.TimeoutError) as error:
            await close(client)
            return reason_of(error)
        except asyncio.CancelledError:  # stopped in the middle of it
            await close(client)
            raise
        self._client, self._requester = client, requester
        self._last_answer = time.monotonic()
        self.connections += 1
        self._error = "the connection broke"
        self._ready.set()
        logger.info("connected to NATS at %s", server_of(client))
        if self._on_connected is not None:
            self._spawn(self._on_connected())
        return ""

    async def _open(self, client: Client, server: str) -> Requester:
        async def make(opened: Client) -> Requester:
            requester = await Requester.on(opened)
            for subscription in self._subscriptions:
                await opened.subscribe(
                    subscription.subject,
                    queue=subscription.queue,
                    cb=subscription.take,
                    pending_bytes_limit=subscription.most_unread,
                )
            return requester

        def report(error: Exception) -> None:
            if self._client is client and not isinstance(error, SlowConsumerError):
                self.server_errors.append(reason_of(error))
                logger.warning("NATS: %s", self.server_errors[-1])

        settings = self._settings._replace(servers=(server,))
        return await open_client(client, settings, make, report, self._broken.set)

    async def _handle_publications(
        self, subject: str, waiting: WaitingMessages, handler: OnPublication, largest: int
    ) -> None:
        """Handle what waits, one after the other, as fast as the pool's share allows."""
        pool = subject.rpartition(".")[2]
        share = self._share(pool)

        async def handle(request: Request) -> None:
            check_token(subject, pool, WireError)
            raw = await self._reassemble(ANSWER_PARTS, pool, request.raw, largest)
            with share.spending():
                handler(pool, codec.decode(raw, largest))

        try:
            while waiting:
                await asyncio.sleep(share.pause_s())
                share.spend(MESSAGE_S)
                now = time.monotonic()
                is_quiet = now - waiting.complained_at < COMPLAIN_EVERY_S
                is_fine = await self._handle(handle, waiting.take(), is_quiet=is_quiet)
                if not is_fine and not is_quiet:
                    waiting.complained_at = now
        finally:
            waiting.is_handled = False

    def _share(self, pool: str) -> Share:
        if len(self._shares) > MOST_SUBJECTS:
            self._shares.clear()
        return self._shares.setdefault(pool, Share())

    async def _handle(self, handler: Handler, message: Msg, *, is_quiet: bool = False) -> bool:
        """Return whether a message could be handled; log why not, unless it is ``is_quiet``."""
        level, reason, bug = logging.WARNING, "", None
        try:
            await handler(Request(self, message))
        except LinkError as error:
            level, reason = logging.INFO, str(error)
        except WireError as error:
            reason = f"refused a message: {error}"
        except Exception as error:  # noqa: BLE001 (one message must never end the others')
            level, reason, bug = logging.ERROR, "a message could not be handled", error
        if reason and not is_quiet:
            logger.log(level, "%s: %s", message.subject, reason, exc_info=bug)
        return not reason

    async def _watch(self) -> None:
        """Return when the connection is broken, or no longer answers."""
        client = self._client
        while client is not None and not self._broken.is_set():
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._broken.wait(), PING_EVERY_S)
                return
            try:
                await client.flush(timeout=PING_TIMEOUT_S)
                self._last_answer = time.monotonic()
            except (NatsError, OSError, asyncio.TimeoutError) as error:
                self._error = f"the server does not answer ({reason_of(error)})"
                return

    async def _disconnect(self, flush: bool = False) -> None:
        client, self._client = self._client, None
        requester, self._requester = self._requester, None
        self._broken.set()  # nats-py does not always call back
        if requester is not None:
            requester.give_up()
        was_ready = self._ready.is_set()
        self._ready.clear()
        if client is None:
            return
        if was_ready and not flush:
            logger.warning("lost the connection to NATS: %s", self._error)
        if flush:
            with contextlib.suppress(NatsError, OSError, asyncio.TimeoutError):
                await settle(client, FLUSH_TIMEOUT_S)
        await close(client)

    def _spawn(self, work: Awaitable[Any]) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
