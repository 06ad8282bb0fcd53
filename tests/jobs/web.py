"""A web server in the test: what probes ask for is noted, and the answer is always 200."""

from __future__ import annotations

import http.server
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Web(http.server.ThreadingHTTPServer):
    """Listens at a port of its own on this machine, whose network jobs share."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.requests: list[bytes] = []

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Answer(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        lines = iter(self.rfile.readline, b"")
        request = b"".join(iter(lambda: next(lines, b"\r\n"), b"\r\n"))
        assert isinstance(self.server, Web)
        if request:  # a tcpSocket probe asks nothing
            self.server.requests.append(request)
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


@contextmanager
def web_server() -> Iterator[Web]:
    with Web() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
