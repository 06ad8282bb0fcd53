"""Keep-alive HTTP clients on raw sockets, in a process of their own so that they are not the limit.

    python -m tests.bench.clients THREADS

For each line of JSON on stdin, ``{"port", "seconds", "method", "path", "body"}``, it asks for that
long and answers with the number of responses per second. ``UID`` in a body becomes a new uid each
time.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
import uuid
from typing import Any

UID = b"00000000-0000-0000-0000-000000000000"


class Client(threading.Thread):
    """Asks over one connection until the time is over."""

    def __init__(self, port: int, until: float, request: bytes) -> None:
        super().__init__(daemon=True)
        self.port, self.until, self.count = port, until, 0
        self.request, self.is_template = request, UID in request
        self.stem = str(uuid.uuid4())[:23]
        self.error: OSError | None = None

    def run(self) -> None:
        connection = None
        try:
            while time.perf_counter() < self.until:
                if connection is None:
                    connection = socket.create_connection(("127.0.0.1", self.port), timeout=130)
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if not self.ask(connection):
                    connection.close()
                    connection = None
                self.count += 1
        except OSError as error:
            self.error = error

    def ask(self, connection: socket.socket) -> bool:
        """Whether the server keeps the connection."""
        request = self.request
        if self.is_template:
            request = request.replace(UID, f"{self.stem}-{self.count:012x}".encode())
        connection.sendall(request)
        answer = connection.recv(65536)
        head, _, body = answer.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise ConnectionError(f"not the answer that was expected: {answer[:300]!r}")
        missing = int(head.lower().split(b"content-length:", 1)[1].split(None, 1)[0]) - len(body)
        while missing > 0:
            more = len(connection.recv(min(missing, 1 << 20)))
            if not more:
                raise ConnectionError("the answer was cut off")
            missing -= more
        return b"\r\nConnection: close" not in head


def request_bytes(method: str, path: str, body: str) -> bytes:
    """The request as it goes over the wire."""
    content = body.encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


def rate(order: dict[str, Any], threads: int) -> float:
    """Responses per second that ``threads`` clients get together."""
    request = request_bytes(order["method"], order["path"], order["body"])
    start = time.perf_counter()
    clients = [Client(order["port"], start + order["seconds"], request) for _ in range(threads)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    errors = [client.error for client in clients if client.error]
    if errors:
        raise errors[0]
    return sum(client.count for client in clients) / (time.perf_counter() - start)


if __name__ == "__main__":
    for line in sys.stdin:
        print(rate(json.loads(line), int(sys.argv[1])), flush=True)
