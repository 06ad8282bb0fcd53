"""A small HTTP server for probes and Prometheus, at a port that strangers reach.

Whatever they send, it costs little and delays nobody for long: so many connections at once and no
more (the oldest makes room for the next), so many seconds for each, and a head of so many bytes.
A body is never read. Each connection has a thread of its own and is closed behind its answer.
"""

from __future__ import annotations

import contextlib
import http.server
import io
import logging
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple

from templates.common.errors import ConfigError

PLAIN = "text/plain; charset=utf-8"
MOST_CONNECTIONS = 64
LONGEST_HEAD = 8 * 1024
REQUEST_S = 5.0  # until the head must be there, and as long for the client to take the answer
PAUSE_S = 0.001  # after a connection that another one had to make room for
BACKLOG = 128
END_OF_HEAD = b"\r\n\r\n"

logger = logging.getLogger(__name__)


class Page(NamedTuple):
    """A response."""

    status: int
    content_type: str
    content: bytes


Pages = Mapping[str, Callable[[], Page]]


def line(status: int, words: str) -> Page:
    """Return a page of one line."""
    return Page(status, PLAIN, f"{words}\n".encode())


def listen(key: str, address: str) -> socket.socket:
    """Listen at address:port; the key is that of the setting, for the ``ConfigError``."""
    host, _, port = address.rpartition(":")
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host.strip("[]"), int(port)))
        found.listen(BACKLOG)
    except OSError as error:
        found.close()
        raise ConfigError(key, f"{address}: {error.strerror or error}") from None
    found.setblocking(False)  # processes may share it: another one may be quicker to accept
    return found


class HealthServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Serves pages on a socket that listens already, from ``start`` to ``stop``."""

    daemon_threads = True

    def __init__(self, listener: socket.socket, pages: Pages) -> None:
        super().__init__(listener.getsockname(), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.pages = pages
        self._lock = threading.Lock()
        self._open: dict[Any, None] = {}  # the connections, the oldest first

    def start(self) -> None:
        """Serve in threads of its own."""
        threading.Thread(target=self.serve_forever, name="health", daemon=True).start()

    def stop(self) -> None:
        """Stop serving, and close this process's end of the socket."""
        self.shutdown()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin with a connection (``socketserver``); the oldest of too many is dropped."""
        oldest = None
        with self._lock:
            self._open[request] = None
            if len(self._open) > MOST_CONNECTIONS:
                oldest = next(iter(self._open))
                del self._open[oldest]
        if oldest is not None:
            _drop(oldest)
            time.sleep(PAUSE_S)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection (``socketserver``)."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log what nobody has foreseen (``socketserver``)."""
        logger.error("a request for a page failed", exc_info=sys.exc_info())


def _drop(connection: socket.socket) -> None:
    """End a connection; its thread sees that and closes it."""
    with contextlib.suppress(OSError):  # its client was quicker
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(http.server.BaseHTTPRequestHandler):
    """One connection, with one request."""

    server: HealthServer
    default_request_version = "HTTP/1.0"  # of what is no request, so that it gets an answer
    error_message_format = "%(message)s\n"
    error_content_type = PLAIN

    def handle(self) -> None:
        """Read the head, all of it, then let ``http.server`` understand it."""
        try:
            head = _read_head(self.connection)
            self.connection.settimeout(REQUEST_S)
            if len(head) > LONGEST_HEAD:
                self.command = self.requestline = ""
                self.request_version = self.default_request_version
                self.send_error(431)
            elif head:
                self.rfile.close()
                self.rfile = io.BytesIO(head)
                self.handle_one_request()
        except OSError:
            return  # the client is gone, or too slow

    def do_GET(self) -> None:
        """Answer with a page (the names of these methods are those of ``http.server``)."""
        page = self.server.pages.get(self.path.partition("?")[0])
        self._answer(page() if page is not None else self._not_found())

    def do_HEAD(self) -> None:
        """Answer without the page itself."""
        self.do_GET()

    def do_POST(self) -> None:
        """Refuse what is no question."""
        is_page = self.path.partition("?")[0] in self.server.pages
        self._answer(line(405, "Method Not Allowed") if is_page else self._not_found())

    def _not_found(self) -> Page:
        *first, last = self.server.pages
        return line(404, f"here are {', '.join(first)} and {last}")

    def _answer(self, page: Page) -> None:
        self.send_response(page.status)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(page.content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(page.content)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: probes come every few seconds."""


def _read_head(connection: socket.socket) -> bytes:
    """Return the head; one byte more than it may have if it is too long; nothing if it is late.

    There is one deadline for all of it: a byte now and then does not keep a connection.
    """
    end = time.monotonic() + REQUEST_S
    received = b""
    while len(received) <= LONGEST_HEAD:
        left_s = end - time.monotonic()
        if left_s <= 0:
            return b""
        connection.settimeout(left_s)
        piece = connection.recv(LONGEST_HEAD + 1)
        if not piece:
            return b""
        received += piece
        head, is_whole, _ = received.partition(END_OF_HEAD)
        if is_whole:
            return (head + END_OF_HEAD)[: LONGEST_HEAD + 1]
    return received[: LONGEST_HEAD + 1]
