"""One client's connection, in the loop's thread: reads requests, and has them answered.

What is answered from memory, or by a coroutine, never leaves that thread. All else is lent to a
thread of a pool, which speaks to the client itself until its answer is sent.
"""

from __future__ import annotations

import asyncio
import io
import logging
import socket
import time
from collections.abc import Coroutine, Iterable
from typing import Any, Callable, NamedTuple

from flask import Flask, Response
from gunicorn import http
from gunicorn.http import wsgi

from plugin_server.framing import request_end, waits_for_permission
from plugin_server.heads import Environment, Heads, named
from plugin_server.http import api

logger = logging.getLogger(__name__)

Application = Callable[[Environment, Any], Iterable[bytes]]

AT_ONCE = 256 * 1024  # bytes read at once
MOST_AHEAD = 64 * 1024  # bytes kept of what comes behind a request that is being answered
LINGER_S = 2.0  # for a client to read the last answer
GO_ON = b"HTTP/1.1 100 Continue\r\n\r\n"


class Host(NamedTuple):
    """What all connections of a worker share."""

    app: Flask
    config: Any  # gunicorn's
    heads: Heads
    loop: asyncio.AbstractEventLoop
    is_alive: Callable[[], bool]
    failed: Callable[[Any, Any, Any, Exception], None]  # says what is wrong with a request
    closed: Callable[[Connection], None]


class Outbox:
    """What gunicorn takes for the client's socket while an answer is made."""

    def __init__(self) -> None:
        self.content = bytearray()

    def sendall(self, data: bytes) -> None:
        """Keep it."""
        self.content += data

    def send(self, data: bytes) -> int:
        """The same; but the word to go on was said long ago, by whoever read the request."""
        if data != GO_ON:
            self.content += data
        return len(data)

    def gettimeout(self) -> float:
        """It never blocks."""
        return 0.0


class Connection:
    """From ``open`` until either side closes it."""

    def __init__(self, host: Host, client: socket.socket, peer: Any, server: Any) -> None:
        client.setblocking(False)
        self._host, self._loop = host, host.loop
        self._client, self._peer, self._server = client, peer, server
        self._descriptor = client.fileno()
        self._received = bytearray()
        self._awaited = 1  # bytes that have to be there before it is worth another look
        self._told_to_go_on = False
        self._is_busy = False
        self._is_heard = False
        self._has_writer = False
        self._has_ended = False  # the client says no more
        self._lingers = False  # the last answer is sent
        self._since = time.monotonic()  # of the last sign of life

    def open(self) -> None:
        """Begin to listen."""
        self._hear()

    def sweep(self, now: float, patience_s: float) -> None:
        """Close it when nothing has come for so long."""
        patience_s = min(patience_s, LINGER_S) if self._lingers else patience_s
        if not self._is_busy and now - self._since > patience_s:
            self._close()

    # --- what comes ---------------------------------------------------------------------------

    def _hear(self) -> None:
        if not self._is_heard and not self._has_ended:
            self._loop.add_reader(self._descriptor, self._readable)
            self._is_heard = True

    def _do_not_hear(self) -> None:
        if self._is_heard:
            self._loop.remove_reader(self._descriptor)
            self._is_heard = False

    def _readable(self) -> None:
        try:
            data = self._client.recv(AT_ONCE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._end()
            return
        if self._lingers:
            return
        self._since = time.monotonic()
        self._received += data
        if not self._is_busy:
            self._next()
        elif len(self._received) > MOST_AHEAD:
            self._do_not_hear()

    def _end(self) -> None:
        """The client says no more; it may still wait for an answer."""
        self._do_not_hear()
        self._has_ended = True
        if not self._is_busy:
            self._close()

    def _next(self) -> None:
        """Begin with the next request, if all of it is there."""
        received = self._received
        if len(received) < self._awaited:
            return
        end = self._awaited = request_end(received)
        if len(received) < end:
            self._let_go_on()
            return
        raw = bytes(received[:end])
        del received[:end]
        self._awaited, self._told_to_go_on, self._is_busy = 1, False, True
        self._serve(raw)

    def _let_go_on(self) -> None:
        if not self._told_to_go_on and waits_for_permission(self._received):
            self._told_to_go_on = True
            try:
                self._client.send(GO_ON)
            except OSError:
                self._end()

    # --- answers ------------------------------------------------------------------------------

    def _serve(self, raw: bytes) -> None:
        outbox, request = Outbox(), None
        try:
            head = named(raw, self._peer, self._server)
            known = head and self._host.heads.find(head, self._peer, outbox)
            if known:
                request, environ = known
            else:
                request = next(http.RequestParser(self._host.config, iter((raw,)), self._peer))
                if request.path not in api.NEVER_BLOCK:
                    self._lend(request)
                    return
                environ = self._environment(request, outbox)
                if head is not None:
                    self._host.heads.keep(head, request, environ)
            later = environ[api.LATER] = []
            keep = self._say(self._host.app, environ, request, outbox)
        except Exception as error:  # noqa: BLE001 (told to this client, and logged if unforeseen)
            keep = self._failed(request, outbox, error)
        else:
            if later:
                # The loop itself knows its tasks only weakly.
                work = self._answer_later(later[0], environ, request)
                self._answering = self._loop.create_task(work)
                return
        self._send(outbox.content, keep)

    async def _answer_later(
        self, work: Coroutine[Any, Any, Response], environ: Environment, request: Any
    ) -> None:
        outbox = Outbox()
        try:
            del environ[api.LATER]
            keep = self._say(await work, environ, request, outbox)
        except Exception as error:  # noqa: BLE001 (as above)
            keep = self._failed(request, outbox, error)
        self._send(outbox.content, keep)

    def _environment(self, request: Any, target: Any) -> Environment:
        """What the application is told of a request, all of which is there."""
        body = request.body.read()  # if it is malformed, gunicorn says so now
        _, environ = wsgi.create(request, target, self._peer, self._server, self._host.config)
        environ["wsgi.input"] = io.BytesIO(body)
        environ["wsgi.multithread"] = True
        found: Environment = environ
        return found

    def _say(
        self, application: Application, environ: Environment, request: Any, target: Any
    ) -> bool:
        """Write what an application answers; whether the client may ask again."""
        response = wsgi.Response(request, target, self._host.config)
        if not self._host.is_alive():
            response.force_close()
        answer = application(environ, response.start_response)
        if environ.get(api.LATER):
            return False
        try:
            for piece in answer:
                response.write(piece)
            response.close()
        except OSError:
            return False  # the client is gone
        except Exception:
            if not response.headers_sent:
                raise
            logger.exception("an answer broke off")
            return False
        finally:
            close = getattr(answer, "close", None)
            if close is not None:
                close()
        return not response.should_close()

    def _failed(self, request: Any, target: Any, error: Exception) -> bool:
        self._host.failed(request, target, self._peer, error)
        return False

    def _send(self, content: bytearray, keep: bool) -> None:
        """Send an answer, now and whenever there is room again."""
        try:
            sent = self._client.send(content)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self._close()
            return
        if sent < len(content):
            del content[:sent]
            self._loop.add_writer(self._descriptor, self._send, content, keep)
            self._has_writer = True
            return
        self._write_no_more()
        self._answered(keep)

    def _write_no_more(self) -> None:
        if self._has_writer:
            self._loop.remove_writer(self._descriptor)
            self._has_writer = False

    def _answered(self, keep: bool) -> None:
        self._since = time.monotonic()
        if not keep and not self._has_ended:
            self._is_busy = False
            self._say_goodbye()
        elif keep and self._received:
            self._loop.call_soon(self._go_on)
        else:
            self._rest()

    def _go_on(self) -> None:
        """With what came behind the request that is answered."""
        self._is_busy = False
        self._next()
        if not self._is_busy:
            self._rest()

    def _rest(self) -> None:
        """Until something comes."""
        self._is_busy = False
        if self._has_ended:
            self._close()
        else:
            self._hear()

    # --- lent to a thread ---------------------------------------------------------------------

    def _lend(self, request: Any) -> None:
        self._do_not_hear()
        self._client.setblocking(True)
        lent = self._loop.run_in_executor(None, self._serve_alone, request)
        lent.add_done_callback(self._returned)

    def _serve_alone(self, request: Any) -> bool:
        """In the thread: answer; whether the client may ask again."""
        client = self._client
        try:
            return self._say(self._host.app, self._environment(request, client), request, client)
        except Exception as error:  # noqa: BLE001 (as above)
            return self._failed(request, client, error)

    def _returned(self, lent: asyncio.Future[bool]) -> None:
        try:
            self._client.setblocking(False)
        except OSError:
            self._close()
            return
        self._answered(not lent.cancelled() and lent.exception() is None and lent.result())

    # --- the end ------------------------------------------------------------------------------

    def _say_goodbye(self) -> None:
        """Close when the client has read it all: what it still sends would cost it the answer."""
        self._lingers = True
        try:
            self._client.shutdown(socket.SHUT_WR)
        except OSError:
            self._close()
            return
        self._hear()

    def _close(self) -> None:
        self._do_not_hear()
        self._write_no_more()
        self._client.close()
        self._host.closed(self)
